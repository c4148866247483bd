package replay

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Filter selects events; an empty field selects all. The zero Filter selects every event.
type Filter struct {
	Campaigns []string
	Types     []wire.EventType
	// Customer selects events that name the customer, and all events of the customer's coupons and reminders: a
	// redemption need not name its customer. To find those, lanes are read from their start.
	Customer string
	// Since (inclusive) and Until (exclusive) are event times.
	Since, Until wire.Instant
	// Lanes to read; none = those that From or To name, or all lanes if these are empty.
	Lanes []int
	// From and To are, by lane, the first and the last message sequence to read. Defaults to the first and the last
	// message of the lane.
	From, To map[int]uint64
	// Mask, if not nil, replaces codes, customers or both in selected events. It is part of the filter because it changes the output:
	// a replay that started with a mask does not continue without it.
	Mask *Mask
}

// InvalidError reports an invalid filter or setting: its name, and which values are valid.
type InvalidError struct{ Field, Problem string }

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

func invalid(field, format string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, args...)}
}

// ParseType parses the name of an event type of event streams.
func ParseType(name string) (wire.EventType, error) {
	var names []string
	for t := range wire.Events() {
		if t.String() == name {
			return t, nil
		}
		names = append(names, t.String())
	}
	slices.Sort(names)
	if name == wire.ReminderDue.String() {
		return 0, fmt.Errorf("%s lines are on scrip.rmd.<lane>, not in the event streams; reminders.due records the firing", name)
	}
	return 0, fmt.Errorf("unknown event type %q; give one of %s", name, strings.Join(names, ", "))
}

// Check validates the filter for a log with the given number of lanes (0 = unknown). Errors are *InvalidError.
func (f *Filter) Check(lanes int) error {
	for _, name := range f.Campaigns {
		if !wire.ValidCampaignName(name) {
			return invalid("campaign", "%q is not a campaign name: 1 to %d of A-Z a-z 0-9 _ -", name, wire.MaxCampaignName)
		}
	}
	if f.Since != 0 && f.Until != 0 && f.Since >= f.Until {
		return invalid("until", "%s is not after --since %s; give a later time", f.Until, f.Since)
	}
	for _, list := range []struct {
		field string
		lanes []int
	}{{"lane", f.Lanes}, {"from", slices.Sorted(maps.Keys(f.From))}, {"to", slices.Sorted(maps.Keys(f.To))}} {
		for _, n := range list.lanes {
			if n < 0 || lanes > 0 && n >= lanes {
				return invalid(list.field, "there is no lane %d; the log has lanes 0 to %d", n, max(lanes, 1)-1)
			}
			if !f.reads(n) {
				return invalid(list.field, "lane %d is not among those of --lane; add it there or leave it out here", n)
			}
		}
	}
	for lane, to := range f.To {
		if from := f.From[lane]; from > to {
			return invalid("to", "%d:%d is before --from %d:%d; give a later position", lane, to, lane, from)
		}
	}
	return nil
}

// reads reports whether a lane is selected. From and To select the lanes that they name.
func (f *Filter) reads(lane int) bool {
	if len(f.Lanes) > 0 {
		return slices.Contains(f.Lanes, lane)
	}
	_, from := f.From[lane]
	_, to := f.To[lane]
	return from || to || len(f.From)+len(f.To) == 0
}

// String returns the filter as flags in a fixed order. It is stored with the output and compared when a replay
// continues.
func (f *Filter) String() string {
	var out []string
	add := func(flag string, values ...string) {
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			out = append(out, "--"+flag+" "+v)
		}
	}
	add("campaign", slices.Clone(f.Campaigns)...)
	var types, lanes, from, to []string
	for _, t := range f.Types {
		types = append(types, t.String())
	}
	for _, n := range f.Lanes {
		lanes = append(lanes, fmt.Sprint(n))
	}
	for n, seq := range f.From {
		from = append(from, fmt.Sprintf("%d:%d", n, seq))
	}
	for n, seq := range f.To {
		to = append(to, fmt.Sprintf("%d:%d", n, seq))
	}
	add("type", types...)
	if f.Customer != "" {
		add("customer", fmt.Sprintf("%q", f.Customer))
	}
	if f.Since != 0 {
		add("since", f.Since.String())
	}
	if f.Until != 0 {
		add("until", f.Until.String())
	}
	add("lane", lanes...)
	add("from", from...)
	add("to", to...)
	if f.Mask != nil {
		add("mask-codes", f.Mask.String())
	}
	return strings.Join(out, " ")
}

// matcher applies a filter to one lane. It remembers the customer's coupons and reminders per campaign; a campaign
// lives on one lane.
type matcher struct {
	*Filter
	// words: a line that contains none of a list cannot match. Searching for them is much cheaper than parsing the
	// line, and correct, because campaigns and types are written without escapes.
	words     [][][]byte
	coupons   map[couponKey]struct{}
	reminders map[reminderKey]struct{}
}

type couponKey struct {
	campaign string
	n        uint32
}

type reminderKey struct {
	campaign string
	r        uint64
}

func newMatcher(f *Filter) *matcher {
	m := &matcher{Filter: f, coupons: map[couponKey]struct{}{}, reminders: map[reminderKey]struct{}{}}
	var campaigns, types [][]byte
	for _, name := range f.Campaigns {
		campaigns = append(campaigns, []byte(name))
	}
	for _, t := range f.Types {
		types = append(types, []byte(t.String()))
	}
	if campaigns != nil {
		m.words = append(m.words, campaigns)
	}
	if types != nil && f.Customer == "" { // with Customer all claims are parsed, whatever Types is
		m.words = append(m.words, types)
	}
	return m
}

// prefilter reports whether a line can match and must be parsed.
func (m *matcher) prefilter(line []byte) bool {
	for _, list := range m.words {
		if !slices.ContainsFunc(list, func(word []byte) bool { return bytes.Contains(line, word) }) {
			return false
		}
	}
	return true
}

// match reports whether an event is selected. It must be called for every event for which prefilter is true, in order.
func (m *matcher) match(e *wire.Event) bool {
	if m.Customer != "" && !m.concernsCustomer(e) {
		return false
	}
	return (len(m.Campaigns) == 0 || slices.Contains(m.Campaigns, e.Campaign)) &&
		(len(m.Types) == 0 || slices.Contains(m.Types, e.Type)) &&
		e.At >= m.Since && (m.Until == 0 || e.At < m.Until)
}

// concernsCustomer reports whether an event concerns the customer, and remembers the customer's coupons and reminders: those
// of events that name the customer, until another customer is named.
func (m *matcher) concernsCustomer(e *wire.Event) bool {
	coupon, reminder := couponKey{e.Campaign, e.N}, reminderKey{e.Campaign, e.R}
	if e.CustomerID == m.Customer {
		switch e.Type.Spec().About {
		case wire.AboutCoupon:
			m.coupons[coupon] = struct{}{}
		case wire.AboutReminder:
			m.reminders[reminder] = struct{}{}
		}
		return true
	}
	known := false
	switch e.Type.Spec().About {
	case wire.AboutCoupon:
		if _, known = m.coupons[coupon]; known && e.CustomerID != "" {
			delete(m.coupons, coupon)
		}
	case wire.AboutReminder:
		_, known = m.reminders[reminder]
	}
	// A rollback sets a reminder again for the holder of the coupon, whom the line does not name.
	if e.Type == wire.ReminderSet && e.CustomerID == "" {
		if _, known = m.coupons[coupon]; known {
			m.reminders[reminder] = struct{}{}
		}
	}
	return known
}

// Mask replaces codes, ids of customers, or both, by a keyed hash. The same text has the same mask under the same key, so tables can be
// joined by it. Without the key a text cannot be recovered from its mask, not even by trying all.
type Mask struct {
	key              []byte
	codes, customers bool // are replaced
}

// NewMask returns the mask of a key, which must be secret.
func NewMask(key [sha256.Size]byte, codes, customers bool) *Mask {
	return &Mask{key[:], codes, customers}
}

const (
	// minMaskKey is the minimum length of a key in bytes: with a guessed key all codes could be tried.
	minMaskKey  = 16
	maskPrefix  = "masked-"
	maskedBytes = 16 // of the hash
)

// OpenMask reads the key from a file: its content without white space at the ends, at least 16 bytes. If the file does
// not exist, it creates one with a random key and mode 0600. Errors: *InvalidError for a key that is too short; errors
// of reading or writing the file.
func OpenMask(path string) (*Mask, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, sha256.Size)
		_, _ = rand.Read(fresh) // it has no error
		err = atomicfile.Create(path, []byte(hex.EncodeToString(fresh)+"\n"), 0o600)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		raw, err = os.ReadFile(path) // another process created it first
	}
	if err != nil {
		return nil, err
	}
	key := strings.TrimSpace(string(raw))
	if len(key) < minMaskKey {
		return nil, invalid("mask-codes", "the key in %s has %d bytes; give a file with %d or more, or one that does not exist", path, len(key), minMaskKey)
	}
	return &Mask{key: []byte(key), codes: true}, nil
}

// Code returns the mask of a code as written in the log and the tables; "" for "". Of a mask of customers alone it is the code.
func (m *Mask) Code(code string) string {
	if code == "" || !m.codes {
		return code
	}
	return maskPrefix + m.hash("code\x00"+code)
}

// Customer returns the mask of a customer's id; "" for "". Of a mask of codes alone it is the id.
func (m *Mask) Customer(id string) string {
	if id == "" || !m.customers {
		return id
	}
	return maskPrefix + m.hash("customer\x00"+id)
}

func (m *Mask) hash(text string) string {
	h := hmac.New(sha256.New, m.key)
	_, _ = h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:maskedBytes])
}

// Pads are what PostgreSQL needs to mask a text as Code and Customer do, without HMAC: its hash is that of outer and the hash of inner,
// the word "code" or "customer", a zero byte, and it.
func (m *Mask) Pads() (inner, outer []byte) {
	inner, outer = make([]byte, sha256.BlockSize), make([]byte, sha256.BlockSize)
	copy(inner, m.key)
	copy(outer, m.key)
	for i := range inner {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	return inner, outer
}

// event masks the secret fields of an event and of its raw line, those that the table of fields has. The line is encoded
// again, without fields that this version does not know: they may hold codes. The quote of a command.rejected is left out for
// the same reason.
func (m *Mask) event(e *Event) {
	e.Mask(func(s wire.Secret, text string) string {
		switch s {
		case wire.SecretCode:
			return m.Code(text)
		case wire.SecretCustomer:
			return m.Customer(text)
		}
		return "" // a secret without a mask is left out
	})
	e.Raw = e.AppendJSON(nil)
}

// String returns a fingerprint of the key, and what else is masked than codes. It is stored with the output and compared when a replay
// continues.
func (m *Mask) String() string {
	text := "key " + m.hash("fingerprint")[:8]
	switch {
	case !m.codes:
		text += " (customers)"
	case m.customers:
		text += " (codes, customers)"
	}
	return text
}
