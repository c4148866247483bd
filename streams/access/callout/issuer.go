package callout

import (
	"crypto/hkdf"
	"crypto/sha256"

	"github.com/nats-io/nkeys"
)

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
