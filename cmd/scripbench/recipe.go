package main

import "context"

// recipe is the best known way to do the job with one system.
type recipe struct {
	name, about string
	server      func(*bench) server
	// fits reports whether it can do a workload.
	fits func(workload) bool
	// open fills the pools for a plan and returns the job ready to go.
	open func(ctx context.Context, b *bench, p *plan, callers int) (job, error)
}

// subject is the recipe that the others are compared with.
const subject = "scrip"

func every(workload) bool      { return true }
func bulkOnly(w workload) bool { return w.style == bulk }

var recipes = []recipe{
	{name: subject, about: "scrip serve, all roles; Go SDK, or a request each", server: onScrip, fits: every, open: openScrip},
	{name: "redis", about: "Lua: list of codes, hash of customers; a connection per caller", server: onRedis, fits: every, open: redisRecipe{pipeline: 1}.open},
	{name: "redis-x16", about: "the same, each connection pipelines 16", server: onRedis, fits: bulkOnly, open: redisRecipe{pipeline: 16}.open},
	{name: "pg-skip-locked", about: "FOR UPDATE SKIP LOCKED, one row in a transaction", server: onPostgres, fits: every, open: pgRow.open},
	{name: "pg-batch-256", about: "FOR UPDATE SKIP LOCKED, 256 claims in a transaction", server: onPostgres, fits: bulkOnly, open: pgBatch.open},
	{name: "pg-counter", about: "UPDATE of one counter row per campaign", server: onPostgres, fits: func(w workload) bool { return !w.redeem }, open: pgCounter.open},
	{name: "limit", about: "bare JetStream publishes of the same command and event lines", server: onLimit, fits: func(w workload) bool { return !w.redeem && w.share == 0 && w.style != single }, open: openLimit},
}
