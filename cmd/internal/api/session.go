package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// slot bounds what a client may hold for as long as it reads or sends: memory, and connections to the read tables. Each part of
// such a request has streamWait.
type slot = web.Quota[string]

type slots struct{ imports, exports, events *slot }

func newSlots() slots {
	of := func(what string, most, perKey int) *slot {
		return web.NewQuota[string]("http_"+what, "key", most, perKey)
	}
	return slots{
		imports: of("imports", 2, 1), exports: of("exports", 4, 2),
		events: of("event_streams", 32, 8), // each has a reader per lane, which holds up to 4 MiB while the client is slow
	}
}

// Limits are those of what clients hold, for the status.
func (a *API) Limits() (all []status.Limit) {
	for _, s := range []*slot{a.slots.imports, a.slots.exports, a.slots.events} {
		all = append(all, s.Limits()...)
	}
	return all
}

// session starts the work of a request that outlives its check, and takes a slot for it: its context ends when the key is
// revoked. A request without a slot, or with a key that was revoked between its check and this, is refused: the problem is
// written, and end is nil.
func (a *API) session(w http.ResponseWriter, req *http.Request, of *slot) (ctx context.Context, end func()) {
	p := principal(req.Context())
	if over := of.Take(p.Client(), p.ID == ""); over != nil { // the credentials of the data directory have no limit of their own
		web.New(web.Overloaded, fmt.Sprintf("%s is %d at this server; end one, or retry", over.What, over.Limit)).Write(w)
		return nil, nil
	}
	ctx, done := a.Sessions.Start(req.Context(), p)
	end = func() { done(); of.Release(p.Client()) }
	if _, problem := a.Gate.Identify(req); problem != nil {
		end()
		problem.Write(w)
		return nil, nil
	}
	return ctx, end
}
