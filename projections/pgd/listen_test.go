package pgd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTheAddressStays: also over a start while another program has the port.
func TestTheAddressStays(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	url := start(t, c)
	port := c.port
	stop(t, c)
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	streamtest.Must(t, err)
	c = Open(opts)
	if start(t, c) == url {
		t.Error("it has a port that is taken")
	}
	stop(t, c)
	streamtest.Must(t, l.Close())
	streamtest.Equal(t, "the port", start(t, Open(opts)), url)
}

type certificate struct{ cert, key []byte }

func newCertificate(t *testing.T, serial int64) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	streamtest.Must(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	streamtest.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	streamtest.Must(t, err)
	return &certificate{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
}

// TestFromElsewhere: analysts come from other addresses, with TLS and to one database; nobody else does. Another certificate is
// used once it is there.
func TestFromElsewhere(t *testing.T) {
	t.Parallel()
	const elsewhere = "127.0.0.2" // pg_hba.conf has 127.0.0.1 alone
	var now atomic.Pointer[certificate]
	now.Store(newCertificate(t, 1))
	opts := testOptions(madeDir(t))
	opts.Host, opts.Certificate = elsewhere, func() ([]byte, []byte) { return now.Load().cert, now.Load().key }
	c, url := supervised(t, opts)
	run(t, c.AdminURL(), "CREATE ROLE scrip_analyst; CREATE ROLE analyst_x LOGIN PASSWORD 'secret' IN ROLE scrip_analyst")
	from := func(user, password, database, mode string) (serial int64, err error) {
		t.Helper()
		config, err := pgx.ParseConfig(strings.Replace(url, "sslmode=disable", "sslmode="+mode, 1))
		streamtest.Must(t, err)
		if user != "" {
			config.User, config.Password = user, password
		}
		config.Host, config.Database = elsewhere, database
		config.DialFunc = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(elsewhere)}}).DialContext
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			return 0, err
		}
		defer conn.Close(context.Background())
		if secure, is := conn.PgConn().Conn().(*tls.Conn); is {
			serial = secure.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		}
		return serial, nil
	}
	if serial, err := from("analyst_x", "secret", "scrip", "require"); err != nil || serial != 1 {
		t.Errorf("an analyst: certificate %d, %v", serial, err)
	}
	for _, refused := range [][]string{{"analyst_x", "wrong", "scrip", "require"}, {"analyst_x", "secret", "scrip", "disable"}, {"analyst_x", "secret", "postgres", "require"}, {"", "", "scrip", "require"}} {
		if _, err := from(refused[0], refused[1], refused[2], refused[3]); err == nil {
			t.Errorf("%v is admitted", refused)
		}
	}
	now.Store(newCertificate(t, 2))
	streamtest.Eventually(t, "another certificate is used", func() bool {
		serial, err := from("analyst_x", "secret", "scrip", "require")
		return err == nil && serial == 2
	})
	comesBack(t, c)
	if serial, err := from("analyst_x", "secret", "scrip", "require"); err != nil || serial != 2 {
		t.Errorf("after a restart: certificate %d, %v", serial, err)
	}
}

// TestSilentConnections: those of a stranger, who sends a name and no password, keep nobody out: they end after authentication_timeout,
// and there are more connections than that.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	opts.Settings["authentication_timeout"] = "1s" // sooner
	c := Open(opts)
	url := start(t, c)
	config, err := pgx.ParseConfig(url)
	streamtest.Must(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(config.Port)))
	const strangers = 110
	ended := make(chan time.Duration, strangers)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	for range strangers {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		hello, err := (&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": roleName, "database": roleName}}).Encode(nil)
		streamtest.Must(t, err)
		_, err = conn.Write(hello)
		streamtest.Must(t, err)
		buffer := make([]byte, 512)
		_, err = conn.Read(buffer) // PostgreSQL wants the password
		streamtest.Must(t, err)
		all.Go(func() {
			for err := error(nil); err == nil; {
				_, err = conn.Read(buffer)
			}
			ended <- time.Since(began)
		})
	}
	if conn, err := pgx.Connect(t.Context(), url); err != nil {
		t.Errorf("beside %d strangers: %v", strangers, err)
	} else {
		_ = conn.Close(t.Context())
	}
	for range strangers {
		if took := <-ended; took > 30*time.Second {
			t.Errorf("a stranger was there for %s", took)
		}
	}
}
