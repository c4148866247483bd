package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

type someKeys map[string]access.Principal

func (k someKeys) Authenticate(key string) (access.Principal, error) {
	switch key {
	case "revoked":
		return access.Principal{}, access.ErrRevoked
	case "early":
		return access.Principal{}, errors.New("the keys are not read yet")
	}
	if p, ok := k[key]; ok {
		return p, nil
	}
	return access.Principal{}, access.ErrUnknownKey
}

func (k someKeys) Principal(id string) (access.Principal, error) { return k.Authenticate(id) }

func (k someKeys) AllowsOrigin(string) bool { return false }

func testGate() *Gate {
	return &Gate{
		Keys: someKeys{
			"shop":    {ID: "k1", Name: "shop", Role: access.Producer},
			"summer":  {ID: "k2", Name: "summer", Role: access.Producer, Campaigns: []string{"summer"}},
			"page":    {ID: "k3", Name: "page", Role: access.Producer, Public: true},
			"analyst": {ID: "k4", Name: "ann", Role: access.Analyst},
		},
		Owner: func(user, password string) bool { return user == "scrip" && password == "secret" },
	}
}

// Each way to authenticate, and each way to fail.
func TestIdentify(t *testing.T) {
	basic := func(user, password string) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	for _, c := range []struct {
		name, header string
		status       int // 0 = identified
		who          string
	}{
		{"nothing", "", 401, ""},
		{"a key", "Bearer shop", 0, "shop"},
		{"in lower case", "bearer shop", 0, "shop"},
		{"with spaces", "Bearer   shop ", 0, "shop"},
		{"no such key", "Bearer other", 401, ""},
		{"a revoked key", "Bearer revoked", 401, ""},
		{"an empty key", "Bearer ", 401, ""},
		{"keys that are not read yet", "Bearer early", 503, ""},
		{"the credentials", basic("scrip", "secret"), 0, "local:scrip"},
		{"other credentials", basic("scrip", "wrong"), 401, ""},
		{"no base64", "Basic %%%", 401, ""},
		{"another scheme", "Digest shop", 401, ""},
		{"the key alone", "shop", 401, ""},
		{"the longest", "Bearer " + strings.Repeat("x", MaxHeader), 401, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		p, problem := testGate().Identify(r)
		switch {
		case c.status == 0 && (problem != nil || p.Name != c.who):
			t.Errorf("%s: %+v, %v", c.name, p, problem)
		case c.status != 0 && (problem == nil || problem.Status != c.status || p.Role != access.NoRole):
			t.Errorf("%s: %+v, %v", c.name, p, problem)
		case c.status == 401 && problem.headers.Get("WWW-Authenticate") == "":
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Authorization"] = []string{"Bearer shop", "Bearer analyst"}
	if _, problem := testGate().Identify(r); problem == nil || problem.Status != 401 {
		t.Errorf("two headers: %v", problem)
	}
	if _, problem := new(Gate).Identify(httptest.NewRequest(http.MethodGet, "/", nil)); problem == nil {
		t.Error("a gate without keys lets requests in")
	}
}

// A revoked key ends its own sessions and no others.
func TestSessions(t *testing.T) {
	var s Sessions
	a1, end1 := s.Start(context.Background(), access.Principal{ID: "a"})
	a2, end2 := s.Start(context.Background(), access.Principal{ID: "a"})
	b, endB := s.Start(context.Background(), access.Principal{ID: "b"})
	owner, endOwner := s.Start(context.Background(), access.Principal{})
	defer endB()
	defer endOwner()
	end2()
	s.Revoke("a")
	s.Revoke("")
	s.Revoke("unknown")
	if !errors.Is(context.Cause(a1), ErrRevoked) || errors.Is(context.Cause(a2), ErrRevoked) || b.Err() != nil || owner.Err() != nil {
		t.Errorf("after revoking a: %v, %v, %v, %v", context.Cause(a1), context.Cause(a2), b.Err(), owner.Err())
	}
	end1()
	if len(s.open) != 1 {
		t.Errorf("%d keys have sessions, want that of b", len(s.open))
	}
}
