// Package authtest lets tests of other packages work as servers do: as the servers' user of package natsauth.
//
//	s := streamtest.Start(t, authtest.Servers(2))
//
// What that user may not do fails the test (streamtest.Strict). Owner: the test.
package authtest

import (
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Servers gives a server the accounts of a log with so many lanes. Its connections are those of the servers' user; no log-in with
// a key is answered.
func Servers(lanes int) streamtest.Option {
	issuer, err := callout.IssuerOf([32]byte{1})
	if err != nil {
		panic(err) // of a constant
	}
	return Accounts(lanes, issuer)
}

// Accounts is Servers, where the test answers log-ins for this issuer.
func Accounts(lanes int, issuer callout.Issuer) streamtest.Option {
	return streamtest.Accounts(natsauth.Render(natsauth.Config{
		Lanes: lanes, Users: []natsauth.User{{Name: streamtest.ServersUser, Password: streamtest.ServersPassword}}, Issuer: issuer.Public(),
	}))
}
