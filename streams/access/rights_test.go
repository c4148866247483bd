package access_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestNobodyGivesMoreThanTheyHave: each role that a key may have, with and without the rights to see codes and customers, and an operator
// limited to campaigns, make and replace keys with and without these. The test itself has what is allowed. A refused change stores and
// records nothing; one that is made is recorded once, with its author.
func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	m := access.NewMemory(t)
	s := m.Store(nil)
	authors := []access.Principal{{Name: "limited", Role: access.Operator, Codes: true, Customers: true, Campaigns: []string{"summer"}}}
	for _, role := range access.Keyed {
		for _, sees := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
			if role != access.Sender || sees == [2]bool{} { // no key of a sender has them
				authors = append(authors, access.Principal{Name: fmt.Sprintf("%s-codes=%t-customers=%t", role, sees[0], sees[1]), Role: role, Codes: sees[0], Customers: sees[1]})
			}
		}
	}
	made := 0
	for _, by := range authors {
		manages := by.Role == access.Operator && by.Campaigns == nil
		for _, key := range []access.New{{Role: access.Support}, {Role: access.Support, Codes: true}, {Role: access.Operator}, {Role: access.Operator, Codes: true},
			{Role: access.Producer}, {Role: access.Producer, Public: true}, {Role: access.Support, Customers: true}, {Role: access.Analyst, Codes: true, Customers: true}, {Role: access.Sender}} {
			for _, replace := range []bool{false, true} {
				made++
				key.Name = fmt.Sprint("key ", made)
				shop := key.Role == access.Producer && !key.Public  // a rotation hands its commands on, with their codes
				named := key.Customers || key.Role == access.Sender // a sender gets customers without a right
				changeKey(t, m, s, by, key, replace, manages && (by.Codes || !key.Codes && !(shop && replace)) && (by.Customers || !named))
			}
		}
	}
}

// changeKey makes or replaces a key as an author who may do so or not.
func changeKey(t *testing.T, m *access.Memory, s *access.Store, author access.Principal, key access.New, replace, may bool) {
	t.Helper()
	what := fmt.Sprintf("by %s: a key of role %s, codes %t, customers %t, replaced %t", author.Name, key.Role, key.Codes, key.Customers, replace)
	var old, k access.Key
	var err error
	if replace {
		if old, _, err = s.Create(t.Context(), key, access.Author{Principal: access.Local("server")}); err != nil { // by credentials: any key may be made
			t.Fatal(err)
		}
	}
	before, err := s.List(t.Context())
	streamtest.Must(t, err)
	m.Recorded()
	var secret, want string
	by := access.Author{Principal: author, Via: "nats"}
	if replace {
		k, secret, err = s.Rotate(t.Context(), key.Name, 0, by)
		want = fmt.Sprintf("%s nats rotate %s %s %s %s", author.Name, old.ID, k.ID, key.Name, key.Role)
	} else {
		k, secret, err = s.Create(t.Context(), key, by)
		want = fmt.Sprintf("%s nats create %s %s %s", author.Name, k.ID, key.Name, key.Role)
	}
	var recorded []string
	for _, e := range m.Recorded() {
		recorded = append(recorded, strings.Join([]string{e.Actor, e.Via, e.Action, e.About}, " "))
	}
	if may {
		newOnly := key.Role == access.Producer && !key.Public && !author.Codes
		if err != nil || secret == "" || k.Codes != key.Codes || k.Customers != key.Customers || k.NewOnly != newOnly || !slices.Equal(recorded, []string{want}) {
			t.Errorf("%s: %+v %v, recorded %q", what, k, err, recorded)
		}
		return
	}
	after, listed := s.List(t.Context())
	if !errors.Is(err, access.ErrForbidden) || secret != "" || listed != nil || len(after) != len(before) || len(recorded) != 0 {
		t.Errorf("%s: %v, %d keys became %d, recorded %q", what, err, len(before), len(after), recorded)
	}
	if _, err := s.Revoke(t.Context(), key.Name, by); author.Role != access.Operator && !errors.Is(err, access.ErrForbidden) {
		t.Errorf("revoke by %s: %v", author.Name, err)
	}
}

// TestAChangeThatIsNotRecorded is not answered, and its key can be found and revoked.
func TestAChangeThatIsNotRecorded(t *testing.T) {
	m := access.NewMemory(t)
	s := m.Store(nil)
	m.Fails(errors.New("the stream is away"))
	by := access.Author{Principal: access.Local("ann")}
	_, secret, err := s.Create(t.Context(), access.New{Name: "x", Role: access.Operator}, by)
	if !errors.Is(err, registry.ErrUnrecorded) || secret != "" {
		t.Errorf("%q %v", secret, err)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	m.Fails(nil)
	if k, err := s.Revoke(t.Context(), all[0].ID, by); err != nil || k.Ended.IsZero() {
		t.Errorf("%+v %v", k, err)
	}
}
