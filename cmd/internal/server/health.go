package server

import "sync"

// check is one thing to be ready for.
type check struct {
	name string
	// needed says that the server is not ready while this is not. What only fills the read tables is not needed:
	// claims go on without.
	needed bool
	ask    func() (ok bool, detail any)
}

// health collects the checks of the parts as they are started.
type health struct {
	mu     sync.Mutex
	checks []check
	// serving is false until the server has started and again once it stops.
	serving bool
}

// Readiness is what /readyz answers.
type Readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]Result `json:"checks"`
}

// Result is how one part stands.
type Result struct {
	OK     bool `json:"ok"`
	Needed bool `json:"needed"`
	Detail any  `json:"detail,omitempty"`
}

// brief is the same without details, which name servers, addresses and errors.
func (r Readiness) brief() Readiness {
	checks := make(map[string]Result, len(r.Checks))
	for name, c := range r.Checks {
		checks[name] = Result{OK: c.OK, Needed: c.Needed}
	}
	return Readiness{Ready: r.Ready, Checks: checks}
}

func (h *health) add(name string, needed bool, ask func() (bool, any)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, needed, ask})
}

func (h *health) serve(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = yes
}

// ask goes through all checks.
func (h *health) ask() Readiness {
	h.mu.Lock()
	checks, ready := h.checks, h.serving
	h.mu.Unlock()
	r := Readiness{Ready: ready, Checks: map[string]Result{"started": {OK: ready, Needed: true}}}
	for _, c := range checks {
		ok, detail := c.ask()
		r.Checks[c.name] = Result{OK: ok, Needed: c.needed, Detail: detail}
		r.Ready = r.Ready && (ok || !c.needed)
	}
	return r
}

// good says whether all needed checks hold, whatever serving says: then the server may begin to serve.
func (h *health) good() bool {
	h.mu.Lock()
	checks := h.checks
	h.mu.Unlock()
	for _, c := range checks {
		if ok, _ := c.ask(); c.needed && !ok {
			return false
		}
	}
	return true
}
