package natsd

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// mostConnections is the default of Options.Connections where the process may open twice as many files.
	mostConnections = 1 << 14
	// maxPending is what may wait for one client, nats-server's own default: the servers read ahead. Options.Pending is for keys.
	maxPending = server.MAX_PENDING_SIZE
	// keptClosed is how many closed connections nats-server remembers, each with its subscriptions.
	keptClosed = 1000
	// DefaultPending is the default of Options.Pending.
	DefaultPending = 32 << 20
)

// Limit is a limit of a listener, which keeps one client from taking what all need.
type Limit struct {
	// What is limited, such as nats_connections: the label limit of the metrics scrip_limit_….
	What string `json:"what"`
	// Used is how much of it is in use. Of a limit for each key or address it is the most that one of them uses.
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	// Refused counts what was refused or closed over the limit since the server's start.
	Refused uint64 `json:"refused"`
}

// The limits. Only ofAll is for the servers' account, too; the others leave it a part of that.
const (
	ofAll         = iota
	ofStrangers   // that have not logged in; nats-server closes each after two seconds
	ofAddress     // the same, from one address
	ofAccount     // for each account of users with keys
	ofKey         // of one key
	subscriptions // of one connection with a key
	pending       // bytes that wait for the clients of one key
	numLimits
)

// refusals are the reasons of nats-server's own refusals.
var refusals = map[string]int{server.MaxConnectionsExceeded.String(): ofAll, server.MaxAccountConnectionsExceeded.String(): ofAccount}

// limits are the limits of a server, as last seen.
type limits struct {
	mu      sync.Mutex
	of      [numLimits]Limit
	counted map[uint64]bool // the connections that nats-server remembers as refused, at the last look
}

func newLimits(o Options) *limits {
	n := int64(o.Connections)
	return &limits{of: [numLimits]Limit{
		{What: "nats_connections", Limit: n},
		{What: "nats_strangers", Limit: n / 4},
		{What: "nats_strangers_per_address", Limit: n / 16},
		{What: "nats_connections_per_account", Limit: min(n/8, natsx.GuestConnections)},
		{What: "nats_connections_per_key", Limit: n / 32},
		{What: "nats_subscriptions_per_connection", Limit: natsx.GuestSubscriptions - 1}, // nats-server makes no more
		{What: "nats_pending_bytes_per_key", Limit: o.Pending},
	}}
}

// Limits returns the limits on this server's clients.
func (s *Server) Limits() []Limit {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	return slices.Clone(s.limits.of[:])
}

// enforce measures what clients use, and closes connections over a limit: the newest of a key, and the oldest of those that have
// not logged in, which takes a client milliseconds. nats-server has no limit for one address or one key.
func (s *Server) enforce() {
	ns, l := s.Nats(), s.limits
	list, err := ns.Connz(&server.ConnzOptions{Username: true, Limit: math.MaxInt}) // the oldest first
	closed, errClosed := ns.Connz(&server.ConnzOptions{State: server.ConnClosed, Limit: keptClosed})
	if err != nil || errClosed != nil {
		return // neither happens with these options
	}
	type user struct {
		limit int
		name  string
	}
	used, over := map[user]int64{}, map[uint64]string{}
	use := func(c *server.ConnInfo, limit int, name string, n int64) {
		at, of := user{limit, name}, &l.of[limit]
		used[at] += n
		of.Used = max(of.Used, used[at])
		if n > 0 && used[at] > of.Limit {
			used[at] -= n
			of.Refused++
			over[c.Cid] = of.What
		}
	}
	l.mu.Lock()
	for n := range l.of {
		l.of[n].Used = 0
	}
	counted := map[uint64]bool{}
	for _, c := range closed.Conns {
		if n, is := refusals[c.Reason]; is {
			counted[c.Cid] = true
			if !l.counted[c.Cid] {
				l.of[n].Refused++
			}
		}
	}
	l.counted = counted
	for _, c := range list.Conns {
		use(c, ofAll, "", 1)
		if c.Account != "" { // Connz leaves out the global account, which is the servers'
			use(c, ofAccount, c.Account, 1)
			use(c, ofKey, c.AuthorizedUser, 1)
			use(c, subscriptions, strconv.FormatUint(c.Cid, 10), int64(c.NumSubs))
			use(c, pending, c.AuthorizedUser, int64(c.Pending))
		}
	}
	for _, c := range slices.Backward(list.Conns) {
		if c.Account == "" && c.AuthorizedUser != s.opts.Username {
			use(c, ofStrangers, "", 1)
			use(c, ofAddress, c.IP, 1)
		}
	}
	l.mu.Unlock()
	for cid, what := range over {
		s.log.Warnf("over the limit %s: closing a connection", what)
		_ = ns.DisconnectClientByID(cid) // it may be gone
	}
}

// OpenFiles is a part of the files that this process may open, at most most. Go has raised the soft limit to the hard one.
func OpenFiles(divisor uint64, most int) int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return most
	}
	return int(min(uint64(files.Cur)/divisor, uint64(most)))
}
