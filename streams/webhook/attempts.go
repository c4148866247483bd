package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/once"
)

const (
	// MostAttempts is how many requests of an endpoint are kept.
	MostAttempts = 100
	// attemptsEvery is how late the requests are that other servers see.
	attemptsEvery = 2 * time.Second
	attemptsWait  = 5 * time.Second
	// quoteMost is how many bytes of an error an attempt quotes.
	quoteMost = 200
)

// Attempt is a request to an endpoint.
type Attempt struct {
	At     time.Time `json:"at"`
	ID     string    `json:"id" doc:"Header webhook-id: of the event, or of the batch."`
	Events int       `json:"events" doc:"How many it had."`
	Millis int64     `json:"milliseconds" doc:"Until the answer, or the error."`
	Status int       `json:"status,omitempty" doc:"Of the answer; absent where there was none."`
	Error  string    `json:"error,omitempty" doc:"Absent = delivered."`
}

// attempts are the last requests of an endpoint, for people who look for what is wrong. They are stored for a day, at the latest
// after attemptsEvery; a crash loses those of that time, and a server that takes the endpoint over starts with none.
type attempts struct {
	store *once.Store
	name  string

	mu      sync.Mutex // guards the fields below
	ring    []Attempt
	waiting bool // to be stored
}

func attemptsOf(webhook string) string { return "attempts " + webhook }

// add adds a request.
func (a *attempts) add(one Attempt) {
	if a == nil || a.store == nil {
		return
	}
	if one.Error = wire.OneLine(one.Error); len(one.Error) > quoteMost {
		one.Error = strings.ToValidUTF8(one.Error[:quoteMost], "") + "…"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ring) == MostAttempts {
		a.ring = append(a.ring[:0], a.ring[1:]...)
	}
	a.ring = append(a.ring, one)
	if !a.waiting {
		a.waiting = true
		time.AfterFunc(attemptsEvery, a.save)
	}
}

func (a *attempts) save() {
	a.mu.Lock()
	a.waiting = false
	text, _ := json.Marshal(a.ring) // never fails
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), attemptsWait)
	defer cancel()
	_ = a.store.Put(ctx, a.name, text) // the next one is stored with these
}

// Attempts returns the last requests of an endpoint, newest first.
func (s *Store) Attempts(ctx context.Context, from *once.Store, webhook string) (all []Attempt, err error) {
	if _, err := s.Show(ctx, webhook); err != nil {
		return nil, err
	}
	text, ok, err := from.Get(ctx, attemptsOf(webhook))
	if err != nil || !ok {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the attempts of webhook %s: %w", webhook, err)
	}
	slices.Reverse(all)
	return all, nil
}
