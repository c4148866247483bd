package streamtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// User is one user of a NATS server with permissions. An empty list allows everything.
type User struct {
	Name               string
	Publish, Subscribe []string
}

// Users is a NATS server that requires a user and a password, and checks permissions. All users are of one account.
type Users struct{ *server.Server }

// StartUsers starts a server with these users, without fsync, stopped when the test ends.
func StartUsers(t testing.TB, users ...User) Users {
	t.Helper()
	o := &server.Options{
		ServerName: "users", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 40, SyncInterval: time.Minute,
	}
	for _, u := range users {
		user := &server.User{Username: u.Name, Password: password, Permissions: &server.Permissions{}}
		if len(u.Publish) > 0 {
			user.Permissions.Publish = &server.SubjectPermission{Allow: u.Publish}
		}
		if len(u.Subscribe) > 0 {
			user.Permissions.Subscribe = &server.SubjectPermission{Allow: u.Subscribe}
		}
		o.Users = append(o.Users, user)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatalf("starting NATS: %v", err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("NATS did not start within a minute")
	}
	return Users{s}
}

const password = "of-a-test"

// URL returns the URL of a user, with credentials.
func (s Users) URL(user string) string {
	u := url.URL{Scheme: "nats", User: url.UserPassword(user, password), Host: s.Addr().String()}
	return u.String()
}

// Certificate returns a certificate and its key in PEM, signed by itself, for the name scrip.example and 127.0.0.1. It is
// valid for the two days before expires.
func Certificate(t testing.TB, serial int64, expires time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "scrip.example"}, DNSNames: []string{"scrip.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: expires.Add(-48 * time.Hour), NotAfter: expires,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
