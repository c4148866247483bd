package web

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// ErrRevoked is the cause of the end of a session whose key was revoked or replaced.
var ErrRevoked = errors.New("the key was revoked")

// Sessions are the requests in progress that outlive their check: streams. When a key is revoked or replaced, the contexts of
// its sessions end.
type Sessions struct {
	mu   sync.Mutex
	open map[string]map[*session]struct{} // by id of the key
}

// session is one request in progress.
type session struct{ cancel context.CancelCauseFunc }

// Start returns a context that ends with ctx, or with cause ErrRevoked when the key of p is revoked. end must be called.
// Credentials of the data directory are not revoked while a server runs.
func (s *Sessions) Start(ctx context.Context, p access.Principal) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.ID == "" {
		return ctx, func() { cancel(nil) }
	}
	one := &session{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]map[*session]struct{}{}
	}
	if s.open[p.ID] == nil {
		s.open[p.ID] = map[*session]struct{}{}
	}
	s.open[p.ID][one] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.open[p.ID], one); len(s.open[p.ID]) == 0 {
			delete(s.open, p.ID)
		}
	}
}

// Revoke ends the sessions of a key. It is for access.Registry.Watch.
//
// A key may be revoked between its check and Start: Start's caller checks it again afterwards, with [Gate.Identify].
func (s *Sessions) Revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open[id] {
		one.cancel(ErrRevoked)
	}
}
