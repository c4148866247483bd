package manage

import (
	"fmt"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// slots bound what a client may hold for as long as it reads or sends: memory, and connections to the read tables. Each part of
// such a request has streamWait.
type slots struct{ imports, exports, events, commands *slot }

func newSlots() slots {
	of := func(what string, most, perKey int) *slot {
		return &slot{web.NewQuota[string]("http_"+what, "key", most, perKey)}
	}
	return slots{
		imports: of("imports", 2, 1), exports: of("exports", 4, 2),
		events:   of("event_streams", 32, 8), // each has a reader per lane, which holds up to 4 MiB while the client is slow
		commands: of("command_streams", 1024, 256),
	}
}

// Limits are those of what clients hold, for the status.
func (a *API) Limits() (all []status.Limit) {
	for _, s := range []*slot{a.slots.imports, a.slots.exports, a.slots.events, a.slots.commands} {
		all = append(all, s.Limits()...)
	}
	return all
}

// slot is one kind. The credentials of the data directory have no limit of their own.
type slot struct{ *web.Quota[string] }

// take takes a slot. A nil release means that there is none: the problem was written.
func (s *slot) take(w http.ResponseWriter, p access.Principal) (release func()) {
	if over := s.Take(p.Client(), p.ID == ""); over != nil {
		web.New(web.Overloaded, fmt.Sprintf("%s is %d at this server; end one, or retry", over.What, over.Limit)).Write(w)
		return nil
	}
	return func() { s.Release(p.Client()) }
}
