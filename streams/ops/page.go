package ops

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// Paging are the parameters of every list.
type Paging struct {
	Limit int    `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"The most entries of a page."`
	After string `json:"after,omitempty" maxLength:"1024" doc:"The next of the page before."`
}

// NeedsHistory refuses a look-up of one coupon that has a place in its history, and does not request that.
var NeedsHistory = invalid("after", "is a place in the history; give history, too")

// Page is a page of every list.
type Page[T any] struct {
	Items  []T    `json:"items" nullable:"false"`
	Next   string `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
	Looked string `json:"looked,omitempty" doc:"Of a page that is short because its time was over: how far it has looked. The number of a coupon, or a time."`
}

// paged and page are implemented by all requests and answers that embed the two.
type (
	paged interface{ cursor() *string }
	page  interface{ next() *string }
)

func (p *Paging) cursor() *string { return &p.After }

func (p *Page[T]) next() *string {
	p.Items = append([]T{}, p.Items...) // [] and not null
	return &p.Next
}

// PageOf cuts a page from a whole list. Its cursor is the id of the last entry.
func PageOf[T any](all []T, p Paging, id func(*T) string) (Page[T], error) {
	if p.After != "" {
		at := slices.IndexFunc(all, func(t T) bool { return id(&t) == p.After })
		if at < 0 {
			return Page[T]{}, invalid("after", "the entry that the page before ended with is gone; start again without it")
		}
		all = all[at+1:]
	}
	if len(all) <= p.Limit {
		return Page[T]{Items: all}, nil
	}
	return Page[T]{Items: all[:p.Limit], Next: id(&all[p.Limit-1])}, nil
}

// Cursors seals where pages end, alike at all servers. A sealed cursor has no meaning for clients: the place may name what its reader
// must not see, such as a campaign out of its scope.
type Cursors struct {
	Secret [32]byte
	Log    string // its UUID
}

// Ends seals and opens the cursors of one list: of its name, of the client that got them, and of the parameters with which it was read.
type Ends struct {
	box *seal.Box
	of  string
}

// limits are the parameters of a list that may differ from page to page.
var limits = []string{"limit", "after"}

// Of returns the ends of pages of a list. request is the struct with its parameters.
func (c Cursors) Of(list string, who access.Principal, request any) Ends {
	var filter Fields
	text, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(text, &filter)
	}
	for _, name := range limits {
		delete(filter, name)
	}
	if err == nil {
		text, err = json.Marshal(filter) // by name
	}
	if err != nil {
		panic("ops: the parameters of " + list + " are no JSON object: " + err.Error()) // they were read from one
	}
	return Ends{c.box(), list + " " + who.Client() + " " + string(text)}
}

// Seal makes a cursor; no place is none.
func (e Ends) Seal(place string) string {
	if place == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(e.box.Seal([]byte(place), e.of))
}

// Open reads a cursor; none is the start. The error is a *Refusal.
func (e Ends) Open(cursor string) (place string, err error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil {
		raw, err = e.box.Open(raw, e.of)
	}
	if err != nil {
		return "", invalid("after", "must be the value of next in the page before, of the same list with the same parameters but limit, and with the same key")
	}
	return string(raw), nil
}

func (c Cursors) box() *seal.Box { return seal.NewBox(c.Secret, c.Log, "scrip cursors v1") }
