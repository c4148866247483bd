package callout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
)

const (
	// listWait is how long nats-servers have to list the connections of a user.
	listWait = 300 * time.Millisecond
	// looks is how often connections of a revoked key are looked for, lookEvery apart: another server of scrip may have
	// answered a log-in before it knew, and the nats-server may take two seconds to finish that.
	looks     = 8
	lookEvery = 500 * time.Millisecond
	// page is the most connections that one nats-server lists for a user at once; the next look finds more.
	page = 1024
	// together is how many users are looked for at once.
	together = 64
)

// kicker disconnects the users of revoked keys.
type kicker struct {
	r    *Responder
	wake chan struct{} // holds a token after a revocation: users are disconnected within a second

	mu   sync.Mutex
	left map[string]int // looks left, by id
}

func newKicker(r *Responder) *kicker {
	return &kicker{r: r, wake: make(chan struct{}, 1), left: map[string]int{}}
}

// revoked is called by the registry and must not wait.
func (k *kicker) revoked(id string) {
	k.mu.Lock()
	k.left[id] = looks
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run looks until ctx ends. It ends by itself when the connection is closed.
func (k *kicker) run(ctx context.Context) {
	pause := time.NewTicker(lookEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-pause.C:
		}
		for ids := range slices.Chunk(k.due(), together) {
			err := k.disconnect(ctx, ids)
			if errors.Is(err, nats.ErrConnectionClosed) || ctx.Err() != nil {
				return
			}
			if err != nil {
				k.r.log.Warn("looking for connections of revoked keys failed; trying again", "keys", ids, "err", err)
				k.again(ids)
			}
		}
	}
}

// due returns the ids to look for, those not looked for yet first, and counts the look.
func (k *kicker) due() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(k.left), func(a, b string) int {
		return cmp.Or(cmp.Compare(k.left[b], k.left[a]), cmp.Compare(a, b))
	})
	for _, id := range ids {
		if k.left[id]--; k.left[id] <= 0 {
			delete(k.left, id)
		}
	}
	return ids
}

func (k *kicker) again(ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.left[id] = max(k.left[id], 1)
	}
}

// connections is the part of a nats-server's list of connections that is used here. Its answer to a request to disconnect
// lists none.
type connections struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Data struct {
		Connections []struct {
			CID  uint64 `json:"cid"`
			User string `json:"authorized_user"`
		} `json:"connections"`
	} `json:"data"`
}

// disconnect disconnects the connections of users on all nats-servers.
func (k *kicker) disconnect(ctx context.Context, ids []string) error {
	nc := k.r.nc
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed
	for _, id := range ids {
		request, err := json.Marshal(map[string]any{"user": id, "auth": true, "limit": page})
		if err == nil {
			err = nc.PublishRequest(natsauth.Connections, inbox, request)
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return nil // all nats-servers have answered, or will not
		case errors.Is(err, nats.ErrNoResponders):
			return nil // nats-servers without the accounts: no key opens them
		case err != nil:
			return err
		}
		var list connections
		if err := json.Unmarshal(m.Data, &list); err != nil {
			return fmt.Errorf("a list of connections: %w", err)
		}
		for _, c := range list.Data.Connections {
			if !slices.Contains(ids, c.User) {
				continue
			}
			body, err := json.Marshal(map[string]uint64{"cid": c.CID})
			if err == nil {
				// A nats-server ignores such a request without a reply subject.
				err = nc.PublishRequest(natsauth.Kick(list.Server.ID), inbox, body)
			}
			if err != nil {
				return err
			}
			k.r.log.Info("the connection of a revoked key was closed", "key", c.User)
		}
	}
}
