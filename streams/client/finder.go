package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// infoSubject requests the metadata of any instance of the micro service.
const infoSubject = "$SRV.INFO.scrip"

// infoWait bounds one request to the service.
const infoWait = time.Second

// found is what a client needs to know of the log.
type found struct {
	uuid  string
	lanes int
	// requests: this client's key may not publish to lanes, so that each command is a request to the service.
	requests bool
}

// same reports whether two answers are about one log. Fields that change in an upgrade are not compared.
func (f found) same(other found) bool { return f.uuid == other.uuid && f.lanes == other.lanes }

// finder reads the log's identity from the micro service's metadata, once, and detects another log at the same
// address: lanes computed for the one would be wrong in the other.
type finder struct {
	nc       *nats.Conn
	life     context.Context // ends with the client
	slot     chan struct{}   // held by the one caller that sends requests; the others wait for it or for their ctx
	known    atomic.Pointer[found]
	replaced atomic.Pointer[found]
}

func (f *finder) log(ctx context.Context) (found, error) {
	if now := f.replaced.Load(); now != nil {
		return found{}, fmt.Errorf("this connection leads to another log now (%s, was %s); make a new client", now.uuid, f.known.Load().uuid)
	}
	if log := f.known.Load(); log != nil {
		return *log, nil
	}
	select {
	case f.slot <- struct{}{}:
		defer func() { <-f.slot }()
	case <-ctx.Done():
		return found{}, ctx.Err()
	case <-f.life.Done():
		return found{}, ErrClosed
	}
	if log := f.known.Load(); log != nil {
		return *log, nil
	}
	log, err := f.request(ctx, infoWait)
	if err != nil {
		return found{}, err
	}
	f.known.Store(&log)
	return log, nil
}

// request retries until a service answers, ctx ends or the client is closed, with pauses that grow up to most.
func (f *finder) request(ctx context.Context, most time.Duration) (found, error) {
	log, err := retry(ctx, f.life, 20*time.Millisecond, most, infoWait, f.requestOnce)
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("no scrip service answers at %s: %w; is `scrip serve` running there?", natsx.WithoutUser(f.nc.ConnectedUrl()), err)
	}
	return log, err
}

// retry calls f, each time for at most wait, until it succeeds, this client may not do it, ctx ends or the client is closed, with pauses
// that grow from first up to most.
func retry[T any](ctx, life context.Context, first, most, wait time.Duration, f func(context.Context) (T, error)) (result T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	pace := &backoff.ExponentialBackOff{InitialInterval: first, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: most}
	for {
		once, done := context.WithTimeout(ctx, wait)
		result, err = f(once)
		done()
		var denied *command.DeniedError
		switch {
		case err == nil, errors.As(err, &denied):
			return result, err
		case errors.Is(err, nats.ErrConnectionClosed), life.Err() != nil:
			return result, ErrClosed
		}
		if natsx.Pause(ctx, pace.NextBackOff()) == nil {
			continue
		}
		if life.Err() != nil {
			return result, ErrClosed
		}
		return result, fmt.Errorf("%w (%w)", err, ctx.Err())
	}
}

func (f *finder) requestOnce(ctx context.Context) (found, error) {
	reply, err := f.nc.RequestWithContext(ctx, infoSubject, nil)
	if err != nil {
		return found{}, err
	}
	var info struct {
		Metadata struct{ Lanes, Log string }
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		return found{}, fmt.Errorf("the service's description is not JSON: %w", err)
	}
	lanes, err := strconv.Atoi(info.Metadata.Lanes)
	if err != nil || lanes < 1 || lanes > topology.MaxLanes || info.Metadata.Log == "" {
		return found{}, fmt.Errorf("the service reports %q lanes and log %q; is it another program?", info.Metadata.Lanes, info.Metadata.Log)
	}
	requests, err := f.requestsOnly(ctx)
	return found{uuid: info.Metadata.Log, lanes: lanes, requests: requests}, err
}

// userInfo requests the permissions of this connection's own user. NATS answers it.
const userInfo = "$SYS.REQ.USER.INFO"

// requestsOnly reports whether this connection logged in with a key that may not publish to lanes. For other users
// nothing is requested: they may lack the permission for it.
func (f *finder) requestsOnly(ctx context.Context) (bool, error) {
	if !natsx.IsInbox(f.nc.Opts.InboxPrefix) {
		return false, nil
	}
	reply, err := f.nc.RequestWithContext(ctx, userInfo, nil)
	if err != nil {
		return false, err
	}
	var user struct {
		Data struct {
			Permissions struct {
				Publish struct{ Allow []string }
			}
		}
	}
	if err := json.Unmarshal(reply.Data, &user); err != nil {
		return false, fmt.Errorf("the permissions of this key are not JSON: %w", err)
	}
	return !slices.Contains(user.Data.Permissions.Publish.Allow, topology.LaneShop(0)), nil
}

// sameWait bounds the wait of lines after a reconnect for a service that reports which log it serves. Longer would delay
// lanes that work while a service is missing.
const sameWait = 5 * time.Second

// samePause is the longest pause between two requests after a reconnect: a service that restarts is soon ready, and all lines wait
// for it.
const samePause = 100 * time.Millisecond

// same reports whether the log of the connection is still the one that lines were sent to. It returns true when no
// service answers in time: watch continues to check.
func (f *finder) same(ctx context.Context) bool {
	was := f.known.Load()
	if was == nil {
		return true // no lane was computed yet
	}
	ctx, cancel := context.WithTimeout(ctx, sameWait)
	defer cancel()
	now, err := f.request(ctx, samePause)
	if err != nil || now.same(*was) {
		return true
	}
	f.replaced.Store(&now)
	return false
}

// watch compares the log after each reconnect.
func (f *finder) watch(ctx context.Context) error {
	status := f.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer f.nc.RemoveStatusListener(status)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-status:
			if !ok || s == nats.CLOSED {
				return nil
			}
			was := f.known.Load()
			if was == nil {
				continue // not needed yet
			}
			if now, err := f.request(ctx, infoWait); err == nil && !now.same(*was) {
				f.replaced.Store(&now)
				return nil
			}
		}
	}
}
