package natsauth

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Variables of the environment of a nats-server that loads docker/nats/cluster.conf.
const (
	RoutesPasswordVariable = "NATS_ROUTES_PASSWORD"
	RoutesVariable         = "NATS_ROUTES"
)

// RoutesUser is the user as which one node of a cluster connects to another.
const RoutesUser = "routes"

// routesInfo separates this use of the code key from others.
const routesInfo = "scrip nats routes 1"

// RoutesPassword is what the nodes of a log with this code key require of each other: a node that joins reads and writes
// everything. No other secret has to be stored, and it reveals nothing about the code key.
func RoutesPassword(codeKey [32]byte) (string, error) {
	secret, err := hkdf.Key(sha256.New, codeKey[:], nil, routesInfo, 20)
	return "r" + hex.EncodeToString(secret), err // the letter: nats-server reads a variable of digits as a number
}

// Routes is the value of RoutesVariable for nodes at these addresses, each HOST:PORT. nats-server gives the password of its own
// listener to nodes that others name, but not to those of its configuration: their URLs must have it.
func Routes(password string, addresses ...string) string {
	var urls []string
	for _, address := range addresses {
		urls = append(urls, fmt.Sprintf("%q", "nats://"+RoutesUser+":"+password+"@"+address))
	}
	return "[" + strings.Join(urls, ",") + "]"
}
