package callout

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// subject is where a nats-server requests the rights of a client; queue distributes the requests among the servers of scrip.
	subject = "$SYS.REQ.USER.AUTH"
	queue   = "scrip"
	// replies is the prefix of the reply subjects of nats-servers. Answers are published with a server's permissions.
	replies = "$SYS._INBOX."
	// validFor is when a connection must log in again. Revoked keys are disconnected at once; this is for a connection that
	// no server of scrip could see then.
	validFor = 12 * time.Hour
	// readsFor is the same for users who read the log itself: each log-in is recorded, and nothing that they read.
	readsFor = time.Hour
	// flushWait is how long the subscription may take to be known to NATS.
	flushWait = 5 * time.Second
	// atOnce bounds the log-ins in progress here.
	atOnce = 256
)

// Keys knows the principals.
type Keys interface {
	// Authenticate returns the principal of a key.
	Authenticate(key string) (access.Principal, error)
	// Watch calls revoked with the id of each key that is no longer valid as it was.
	Watch(revoked func(id string)) (stop func())
}

// Responder answers log-ins.
type Responder struct {
	// LoggedIn, if set before Run, records a log-in from an address, without a wait. It may be called by several goroutines at once.
	LoggedIn func(p access.Principal, from string)
	// Strangers, if set before Run, counts log-ins without a key that opens NATS. Beyond the rate of an address they get no answer:
	// nothing is signed for them, and the nats-server closes them after two seconds.
	Strangers *access.Strangers

	nc     *nats.Conn
	lanes  int
	issuer Issuer
	keys   Keys
	log    *slog.Logger
	clock  wall.Clock
	ready  chan struct{}
	kicks  *kicker
	forget func() // ends the watch of keys
}

// New returns the responder of a log of that many lanes, on a connection in the servers' account. It watches the keys from
// now on; make it before the keys are read, and it disconnects users whose key was revoked before. logger may be nil.
func New(nc *nats.Conn, lanes int, issuer Issuer, keys Keys, logger *slog.Logger) *Responder {
	r := &Responder{nc: nc, lanes: lanes, issuer: issuer, keys: keys, log: cmp.Or(logger, slog.Default()), clock: wall.Machine, ready: make(chan struct{})}
	r.kicks = newKicker(r)
	r.forget = keys.Watch(r.kicks.revoked)
	return r
}

// Ready is closed when log-ins are answered.
func (r *Responder) Ready() <-chan struct{} { return r.ready }

// Run answers log-ins until ctx ends or the connection is closed. Run it once.
func (r *Responder) Run(ctx context.Context) error {
	closed := r.nc.StatusChanged(nats.CLOSED)
	defer r.nc.RemoveStatusListener(closed)
	defer r.forget()
	var working sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	sub, err := r.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			r.answer(m)
		})
	})
	if err != nil {
		return fmt.Errorf("subscribing to log-ins: %w", err)
	}
	defer working.Wait()
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	if err := r.nc.FlushTimeout(flushWait); err != nil && ctx.Err() == nil && !r.nc.IsClosed() {
		r.log.Warn("log-ins with keys are answered once NATS is reached", "err", err)
	}
	close(r.ready)
	looking, stop := context.WithCancel(ctx)
	defer stop()
	working.Go(func() { r.kicks.run(looking) })
	select {
	case <-ctx.Done():
		return nil
	case <-closed:
		return nats.ErrConnectionClosed
	}
}

// answer answers one log-in. A request that is no nats-server's gets no answer.
func (r *Responder) answer(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, replies) {
		return
	}
	request, err := requested(string(m.Data))
	if err != nil {
		r.log.Warn("a request for a log-in was not understood", "err", err)
		return
	}
	principal, permissions, err := r.who(request)
	switch {
	case errors.Is(err, access.ErrNotReady):
		return // not refused: nats.go gives a connection up that is refused twice. The log-in times out, and the client tries again.
	case err != nil && r.Strangers.Wrong(access.DoorNATS, from(request)):
		return
	}
	user := ""
	if err == nil {
		user, err = r.user(request.UserNkey, principal, permissions)
	}
	answer := jwt.NewAuthorizationResponseClaims(request.UserNkey)
	answer.Audience = request.Server.ID
	if answer.Jwt = user; err != nil {
		answer.Jwt, answer.Error = "", err.Error()
		r.log.Debug("a log-in to NATS was refused", "client", request.ClientInformation.Host, "name", request.ConnectOptions.Name, "err", err)
	}
	body, err := answer.Encode(r.issuer.pair)
	if err == nil {
		err = r.nc.Publish(m.Reply, []byte(body))
	}
	if err != nil {
		r.log.Warn("a log-in was not answered; the client tries again", "err", err)
		return
	}
	if user == "" || r.LoggedIn == nil {
		return
	}
	r.LoggedIn(principal, request.ClientInformation.Host)
}

var errNoNATS = errors.New("keys of this role do not open NATS")

// who returns whose key is the token of a request, or its password, and what that one may do. It costs no signature.
func (r *Responder) who(request *jwt.AuthorizationRequestClaims) (p access.Principal, permissions natsauth.Permissions, err error) {
	key := cmp.Or(request.ConnectOptions.Token, request.ConnectOptions.Password)
	if key == "" {
		return p, permissions, access.ErrUnknownKey
	}
	if p, err = r.keys.Authenticate(key); err != nil {
		return p, permissions, err
	}
	permissions, ok := natsauth.Of(p, r.lanes)
	if !ok {
		err = errNoNATS
	}
	return p, permissions, err
}

// user returns a principal as a signed user of NATS.
func (r *Responder) user(nkey string, p access.Principal, permissions natsauth.Permissions) (signed string, err error) {
	user := jwt.NewUserClaims(nkey)
	user.Name, user.Audience = p.ID, permissions.Account
	user.Expires = r.clock.Now().Add(validFor).Unix()
	if p.ReadsLog() {
		user.Expires = r.clock.Now().Add(readsFor).Unix()
	}
	user.Pub.Allow.Add(permissions.Publish...)
	user.Sub.Allow.Add(permissions.Subscribe...)
	return user.Encode(r.issuer.pair)
}

// Issuer signs answers to log-ins. The nats-servers' configuration has its public key.
type Issuer struct{ pair nkeys.KeyPair }

// NewIssuer makes one at random, for a nats-server in the same process.
func NewIssuer() (Issuer, error) {
	pair, err := nkeys.CreateAccount()
	return Issuer{pair}, err
}

// issuerInfo separates this use of the code key from others.
const issuerInfo = "scrip nats issuer 1"

// IssuerOf is the issuer of a log with this code key: every server that has the key answers log-ins, and no other secret has
// to be given to them. The public key reveals nothing about the code key.
func IssuerOf(codeKey [32]byte) (Issuer, error) {
	seed, err := hkdf.Key(sha256.New, codeKey[:], nil, issuerInfo, 32)
	if err != nil {
		return Issuer{}, err
	}
	pair, err := nkeys.FromRawSeed(nkeys.PrefixByteAccount, seed)
	return Issuer{pair}, err
}

// Public is the key for the configuration of nats-servers: A and 55 letters and digits.
func (i Issuer) Public() string {
	public, err := i.pair.PublicKey()
	if err != nil {
		panic(err) // not for a pair with a seed
	}
	return public
}
