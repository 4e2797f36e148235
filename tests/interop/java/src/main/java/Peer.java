import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import redis.clients.jedis.Jedis;

/** Redisson's RLock and RFencedLock, and a SETNX/GETSET lock on Jedis, steered by lines: see ../../../README.md. */
public final class Peer {
    private interface Lock {
        /** The fence, 0 without one; -1 when it is busy. */
        long acquire(long leaseMs, long waitMs) throws InterruptedException;

        boolean release();

        default String renew(long leaseMs) {
            return "cannot";
        }

        default String ask(String what) {
            return "error unknown request";
        }
    }

    private static final class RedissonLock implements Lock {
        private final RLock lock;

        RedissonLock(RedissonClient client, String kind, String name) {
            lock = kind.equals("fenced") ? client.getFencedLock(name) : client.getLock(name);
        }

        // A lease of 0 is Redisson's own, with its watchdog.
        @Override
        public long acquire(long leaseMs, long waitMs) throws InterruptedException {
            final long lease = leaseMs == 0 ? -1 : leaseMs;
            if (lock instanceof RFencedLock fenced) {
                final Long fence = fenced.tryLockAndGetToken(waitMs, lease, TimeUnit.MILLISECONDS);
                return fence == null ? -1 : fence;
            }
            return lock.tryLock(waitMs, lease, TimeUnit.MILLISECONDS) ? 0 : -1;
        }

        @Override
        public boolean release() {
            try {
                lock.unlock();
                return true;
            } catch (IllegalMonitorStateException notMine) {
                return false;
            }
        }

        @Override
        public String ask(String what) {
            switch (what) {
                case "locked":
                    return String.valueOf(lock.isLocked());
                case "holds":
                    return String.valueOf(lock.getHoldCount());
                case "remaining":
                    return String.valueOf(lock.remainTimeToLive());
                case "force":
                    return String.valueOf(lock.forceUnlock());
                default:
                    return "error unknown request";
            }
        }
    }

    /** As it was written in many services: the value is the time at which the lock may be taken over. */
    private static final class GetSetLock implements Lock {
        private final Jedis server;
        private final String name;
        private long mine;

        GetSetLock(Jedis server, String name) {
            this.server = server;
            this.name = name;
        }

        private boolean attempt(long leaseMs) {
            final String stamp = String.valueOf(System.currentTimeMillis() + leaseMs + 1);
            if (server.setnx(name, stamp) == 1) {
                mine = Long.parseLong(stamp);
                return true;
            }
            final String present = server.get(name);
            if (present == null || Long.parseLong(present) >= System.currentTimeMillis()) return false;
            if (!present.equals(server.getSet(name, stamp))) return false;
            mine = Long.parseLong(stamp);
            return true;
        }

        @Override
        public long acquire(long leaseMs, long waitMs) throws InterruptedException {
            final long end = System.nanoTime() + waitMs * 1_000_000;
            while (!attempt(leaseMs)) {
                if (System.nanoTime() >= end) return -1;
                Thread.sleep(20);
            }
            return 0;
        }

        @Override
        public boolean release() {
            if (!String.valueOf(mine).equals(server.get(name)) || System.currentTimeMillis() > mine) return false;
            server.del(name);
            return true;
        }
    }

    private static Lock held;
    private static long lease;

    private static Lock make(String kind, int port, RedissonClient client, String name) {
        return kind.equals("getset") ? new GetSetLock(new Jedis("127.0.0.1", port), name) : new RedissonLock(client, kind, name);
    }

    private static String crowd(Lock lock, double seconds) throws InterruptedException {
        final long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            if (lock.acquire(5000, 5000) < 0) continue;
            final long began = System.nanoTime();
            Thread.sleep(1);
            final long ended = System.nanoTime();
            if (lock.release()) System.out.println(began + " " + ended);
        }
        return "done";
    }

    public static void main(String[] arguments) throws Exception {
        final String kind = arguments[0];
        final int port = Integer.parseInt(arguments[1]);
        RedissonClient client = null;
        if (!kind.equals("getset")) {
            final Config config = new Config();
            config.setThreads(2).setNettyThreads(2);
            config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
            client = Redisson.create(config);
        }
        System.out.println("ready");
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            final String[] words = line.split(" ");
            try {
                switch (words[0]) {
                    case "acquire":
                        held = make(kind, port, client, words[1]);
                        lease = Long.parseLong(words[2]);
                        final long fence = held.acquire(lease, Long.parseLong(words[3]));
                        System.out.println(fence < 0 ? "busy" : "got " + fence);
                        break;
                    case "again":
                        System.out.println(held.acquire(lease, 0) < 0 ? "busy" : "got 0");
                        break;
                    case "release":
                        System.out.println(held.release() ? "released" : "not mine");
                        break;
                    case "renew":
                        System.out.println(held.renew(lease));
                        break;
                    case "crowd":
                        System.out.println(crowd(make(kind, port, client, words[1]), Double.parseDouble(words[2])));
                        break;
                    case "look":
                        held = make(kind, port, client, words[1]);
                        System.out.println("looking");
                        break;
                    default:
                        System.out.println(held.ask(words[0]));
                }
            } catch (Exception problem) {
                System.out.println("error " + String.valueOf(problem).replace('\n', ' '));
            }
        }
        System.exit(0);
    }
}
