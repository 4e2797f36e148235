// node-redlock and redis-semaphore's Mutex, steered by lines: see ../README.md.
import { createRequire } from 'node:module'
import readline from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

const require = createRequire(import.meta.url)
const { Redis } = require('ioredis')
const { Mutex } = require('redis-semaphore')
const Redlock = require('redlock')

const [kind, port] = process.argv.slice(2)
const server = new Redis({ host: '127.0.0.1', port: Number(port), lazyConnect: false })

async function redlockAcquire(name, leaseMs, waitMs) {
  const every = 20
  const client = new Redlock([server], { retryCount: Math.floor(waitMs / every), retryDelay: every, retryJitter: 0 })
  client.on('error', () => {})
  try {
    return await client.lock(name, leaseMs)
  } catch (problem) {
    if (problem instanceof Redlock.LockError) return null
    throw problem
  }
}

async function acquire(name, leaseMs, waitMs) {
  if (kind === 'redlock') return redlockAcquire(name, leaseMs, waitMs)
  const mutex = new Mutex(server, name, {
    lockTimeout: leaseMs,
    acquireTimeout: Math.max(waitMs, 1),
    retryInterval: 20,
    refreshInterval: 0,
    onLockLost: () => {}
  })
  return (await mutex.tryAcquire()) || (waitMs > 0 && (await tryFor(mutex, waitMs))) ? mutex : null
}

async function tryFor(mutex, waitMs) {
  try {
    await mutex.acquire()
    return true
  } catch {
    return false
  }
}

async function release(lock) {
  try {
    if (kind === 'redlock') {
      await lock.unlock()
      return 'released'
    }
    // It does not say whether it was still its own.
    const mine = (await server.get(lock._key)) === lock.identifier
    await lock.release()
    return mine ? 'released' : 'not mine'
  } catch {
    return 'not mine'
  }
}

async function renew(lock, leaseMs) {
  if (kind !== 'redlock') return (await lock._refresh()) ? 'renewed' : 'not mine'
  try {
    held = await lock.extend(leaseMs)
    return 'renewed'
  } catch {
    return 'not mine'
  }
}

async function crowd(name, seconds) {
  const end = process.hrtime.bigint() + BigInt(Math.round(seconds * 1e9))
  while (process.hrtime.bigint() < end) {
    const lock = await acquire(name, 5000, 5000)
    if (!lock) continue
    const began = process.hrtime.bigint()
    await pause(1)
    const ended = process.hrtime.bigint()
    if ((await release(lock)) === 'released') console.log(`${began} ${ended}`)
  }
  return 'done'
}

let held = null
let lease = 0
async function answer(words) {
  switch (words[0]) {
    case 'acquire':
      lease = Number(words[2])
      held = await acquire(words[1], lease, Number(words[3]))
      return held ? 'got 0' : 'busy'
    case 'release':
      return release(held)
    case 'renew':
      return renew(held, lease)
    case 'crowd':
      return crowd(words[1], Number(words[2]))
    default:
      return 'error unknown request'
  }
}

console.log('ready')
for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    console.log(await answer(line.split(' ')))
  } catch (problem) {
    console.log(`error ${problem}`)
  }
}
process.exit(0)
