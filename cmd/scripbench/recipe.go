package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// recipe is the best known way to do the job with one system.
type recipe struct {
	name, says string
	server     func(*stand) server
	// fits says whether it can do a workload.
	fits func(workload) bool
	// open fills the pools for a plan and returns the job ready to go.
	open func(ctx context.Context, s *stand, p *plan, callers int) (job, error)
}

// subject is the recipe that the others are compared with.
const subject = "scrip"

var recipes = []recipe{
	{
		name: subject, says: "scrip serve, all roles; Go SDK, or a request each",
		server: func(s *stand) server { return s.scrip },
		fits:   func(workload) bool { return true },
		open:   openScrip,
	},
	{
		name: "redis", says: "Lua: list of codes, hash of customers; a connection per caller",
		server: func(s *stand) server { return s.redis },
		fits:   func(workload) bool { return true },
		open:   redisRecipe{pipeline: 1}.open,
	},
	{
		name: "redis-x16", says: "the same, each connection pipelines 16",
		server: func(s *stand) server { return s.redis },
		fits:   func(w workload) bool { return w.style == crowd },
		open:   redisRecipe{pipeline: 16}.open,
	},
	{
		name: "pg-skip-locked", says: "FOR UPDATE SKIP LOCKED, one row in a transaction",
		server: func(s *stand) server { return s.postgres },
		fits:   func(workload) bool { return true },
		open:   postgresRecipe{kind: pgRow}.open,
	},
	{
		name: "pg-batch-256", says: "FOR UPDATE SKIP LOCKED, 256 claims in a transaction",
		server: func(s *stand) server { return s.postgres },
		fits:   func(w workload) bool { return w.style == crowd },
		open:   postgresRecipe{kind: pgBatch}.open,
	},
	{
		name: "pg-counter", says: "UPDATE of one counter row per campaign",
		server: func(s *stand) server { return s.postgres },
		fits:   func(w workload) bool { return !w.redeem },
		open:   postgresRecipe{kind: pgCounter}.open,
	},
	{
		name: "limit", says: "bare JetStream publishes of the same command and event lines",
		server: func(s *stand) server { return s.limit },
		fits:   func(w workload) bool { return !w.redeem && w.share == 0 && w.style != each },
		open:   openLimit,
	},
}

// recipesNamed finds recipes by name, all if none is named.
func recipesNamed(names []string) ([]recipe, error) {
	if len(names) == 0 {
		return recipes, nil
	}
	var all []string
	for _, r := range recipes {
		all = append(all, r.name)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, usageError{fmt.Errorf("--systems: there is no %q; there are %s", name, strings.Join(all, ", "))}
		}
	}
	var found []recipe
	for _, r := range recipes {
		if slices.Contains(names, r.name) {
			found = append(found, r)
		}
	}
	return found, nil
}
