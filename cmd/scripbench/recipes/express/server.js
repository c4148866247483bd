// Claims over HTTP with Express and Redis: for each campaign a list of free codes, a hash of holders and a hash of
// Idempotency-Keys, and one Lua script per claim. It runs one process per core.
//
// Arguments: the port to listen on, and the port of Redis.
'use strict'
process.env.NODE_ENV = 'production' // before Express is loaded
const cluster = require('node:cluster')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')

if (cluster.isPrimary) {
  os.cpus().forEach(() => cluster.fork())
  cluster.on('exit', () => process.exit(1))
} else {
  const express = require('express')
  const { Redis } = require('ioredis')
  const [port, redisPort] = process.argv.slice(2).map(Number)
  const redis = new Redis({ host: '127.0.0.1', port: redisPort, enableAutoPipelining: true })
  redis.defineCommand('claim', { numberOfKeys: 3, lua: fs.readFileSync(path.join(__dirname, 'claim.lua'), 'utf8') })
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.use(express.json({ limit: '16kb' }))
  app.post('/v1/campaigns/:campaign/claims', async (req, res) => {
    const campaign = req.params.campaign
    const id = req.get('Idempotency-Key')
    const customer = req.body?.customer_id
    if (!id || typeof customer !== 'string' || customer === '') {
      res.status(400).json({ code: 'malformed' })
      return
    }
    const code = await redis.claim('codes:' + campaign, 'holders:' + campaign, 'ids:' + campaign, customer, id)
    if (code === null) {
      res.status(409).json({ code: 'sold_out' })
      return
    }
    const repeat = code.startsWith('=')
    res.set('Cache-Control', 'no-store')
    res.status(repeat ? 200 : 201).json({ id, status: 'claimed', campaign, code: repeat ? code.slice(1) : code, customer_id: customer })
  })
  app.listen(port, '127.0.0.1')
}
