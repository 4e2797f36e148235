// A RedisLock on garyburd/redigo, go-zero's RedisLock and redsync, steered by lines: see ../README.md.
package main

import (
	"bufio"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/garyburd/redigo/redis"
	"github.com/go-redsync/redsync/v4"
	syncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"
	zero "github.com/zeromicro/go-zero/core/stores/redis"
	"golang.org/x/sys/unix"
)

type lock interface {
	acquire(lease time.Duration) (bool, error)
	release() (bool, error)
	renew(lease time.Duration) (bool, error)
}

// The RedisLock that services write on redigo: SET NX EX in whole seconds, a day when unset; compare-and-delete.
type redigoLock struct {
	conn       redis.Conn
	key, token string
}

func newRedigoLock(address, name string) (lock, error) {
	conn, err := redis.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	key := "lock->" + name
	id, err := uuid.NewUUID()
	if err != nil {
		return nil, err
	}
	return &redigoLock{conn, key, fmt.Sprintf("%x", md5.Sum([]byte(id.String()+key)))}, nil
}

func (l *redigoLock) acquire(lease time.Duration) (bool, error) {
	seconds := int(lease / time.Second)
	if seconds == 0 {
		seconds = 86400
	}
	_, err := redis.String(l.conn.Do("SET", l.key, l.token, "EX", seconds, "NX"))
	if errors.Is(err, redis.ErrNil) {
		return false, nil
	}
	return err == nil, err
}

var compareAndDelete = redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
var compareAndExpire = redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)

func (l *redigoLock) release() (bool, error) {
	return redis.Bool(compareAndDelete.Do(l.conn, l.key, l.token))
}
func (l *redigoLock) renew(lease time.Duration) (bool, error) {
	return redis.Bool(compareAndExpire.Do(l.conn, l.key, l.token, lease.Milliseconds()))
}

type zeroLock struct{ inner *zero.RedisLock }

func (l *zeroLock) acquire(lease time.Duration) (bool, error) {
	l.inner.SetExpire(int(lease / time.Second))
	return l.inner.Acquire()
}
func (l *zeroLock) release() (bool, error)                  { return l.inner.Release() }
func (l *zeroLock) renew(lease time.Duration) (bool, error) { return l.acquire(lease) }

type syncLock struct {
	sync  *redsync.Redsync
	name  string
	mutex *redsync.Mutex
}

func (l *syncLock) acquire(lease time.Duration) (bool, error) {
	l.mutex = l.sync.NewMutex(l.name, redsync.WithExpiry(lease), redsync.WithTries(1))
	err := l.mutex.TryLock()
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	return err == nil, err
}
func (l *syncLock) release() (bool, error) {
	ok, err := l.mutex.Unlock()
	return ok, notMine(err)
}
func (l *syncLock) renew(time.Duration) (bool, error) {
	ok, err := l.mutex.Extend()
	return ok, notMine(err)
}
func notMine(err error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return nil
	}
	return err
}

func newLock(kind, address, name string) (lock, error) {
	switch kind {
	case "redigo":
		return newRedigoLock(address, name)
	case "gozero":
		server, err := zero.NewRedis(zero.RedisConf{Host: address, Type: zero.NodeType})
		if err != nil {
			return nil, err
		}
		return &zeroLock{zero.NewRedisLock(server, name)}, nil
	case "redsync":
		pool := syncpool.NewPool(goredis.NewClient(&goredis.Options{Addr: address}))
		return &syncLock{sync: redsync.New(pool), name: name}, nil
	}
	return nil, errors.New("unknown kind " + kind)
}

// None of them waits by itself in a way that all have: one tries every 20 ms.
func acquireWithin(l lock, lease, wait time.Duration) (bool, error) {
	for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		if ok, err := l.acquire(lease); ok || err != nil {
			return ok, err
		}
		if !time.Now().Before(end) {
			return false, nil
		}
	}
}

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

func crowd(kind, address, name string, length time.Duration) error {
	l, err := newLock(kind, address, name)
	if err != nil {
		return err
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		ok, err := acquireWithin(l, 5*time.Second, 5*time.Second)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		began := monotonic()
		time.Sleep(time.Millisecond)
		ended := monotonic()
		if released, err := l.release(); err != nil {
			return err
		} else if released {
			fmt.Println(began, ended)
		}
	}
	return nil
}

var (
	held  lock
	lease time.Duration
)

func milliseconds(word string) time.Duration {
	n, _ := strconv.Atoi(word)
	return time.Duration(n) * time.Millisecond
}

func answer(kind, address string, words []string) (string, error) {
	said := func(ok bool, yes, no string) string {
		if ok {
			return yes
		}
		return no
	}
	switch words[0] {
	case "acquire":
		var err error
		if held, err = newLock(kind, address, words[1]); err != nil {
			return "", err
		}
		lease = milliseconds(words[2])
		ok, err := acquireWithin(held, lease, milliseconds(words[3]))
		return said(ok, "got 0", "busy"), err
	case "release":
		ok, err := held.release()
		return said(ok, "released", "not mine"), err
	case "renew":
		ok, err := held.renew(lease)
		return said(ok, "renewed", "not mine"), err
	case "crowd":
		seconds, _ := strconv.ParseFloat(words[2], 64)
		return "done", crowd(kind, address, words[1], time.Duration(seconds*float64(time.Second)))
	}
	return "", errors.New("unknown request")
}

func main() {
	logx.Disable()
	kind, address := os.Args[1], "127.0.0.1:"+os.Args[2]
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		said, err := answer(kind, address, strings.Fields(lines.Text()))
		if err != nil {
			said = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(said)
	}
}
