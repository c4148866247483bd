package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// NATSFlags are the flags for NATS servers that require more than a user and a password in the URL.
type NATSFlags struct{ ca, creds, nkey, token string }

// The names of the flags.
const (
	caFlag    = "nats-ca"
	credsFlag = "nats-creds"
	nkeyFlag  = "nats-nkey-file"
	tokenFlag = "nats-token-file"
)

// Add adds the flags, each also with a variable.
func (f *NATSFlags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.ca, caFlag, "", "`FILE` with the certificates in PEM that sign the NATS server's; absent = those of the system")
	fs.StringVar(&f.creds, credsFlag, "", "`FILE` with NATS credentials, a JWT and its nkey")
	fs.StringVar(&f.nkey, nkeyFlag, "", "`FILE` with the seed of an nkey")
	fs.StringVar(&f.token, tokenFlag, "", "`FILE` with a key of scrip access, or another NATS token")
	WithVariable(fs, caFlag, credsFlag, nkeyFlag, tokenFlag)
}

// Credentials reports whether a flag names credentials.
func (f *NATSFlags) Credentials() bool { return f.creds+f.nkey+f.token != "" }

// Options returns the options of a connection. Its errors name the flag.
func (f *NATSFlags) Options() ([]nats.Option, error) {
	var opts []nats.Option
	given := 0
	for _, file := range []string{f.creds, f.nkey, f.token} {
		if file != "" {
			given++
		}
	}
	if given > 1 {
		return nil, Usagef("give one of --%s, --%s and --%s", credsFlag, nkeyFlag, tokenFlag)
	}
	if f.ca != "" {
		pool := x509.NewCertPool()
		text, err := os.ReadFile(f.ca)
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New("it has no certificate in PEM")
		}
		if err != nil {
			return nil, Usagef("--%s: %w", caFlag, err)
		}
		opts = append(opts, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	}
	if f.creds != "" {
		if _, err := os.Stat(f.creds); err != nil {
			return nil, Usagef("--%s: %w", credsFlag, err)
		}
		opts = append(opts, nats.UserCredentials(f.creds))
	}
	if f.nkey != "" {
		option, err := nats.NkeyOptionFromSeed(f.nkey)
		if err != nil {
			return nil, Usagef("--%s: %w", nkeyFlag, err)
		}
		opts = append(opts, option)
	}
	if f.token != "" {
		token, err := os.ReadFile(f.token)
		text := strings.TrimSpace(string(token))
		if err == nil && text == "" {
			err = fmt.Errorf("%s is empty", f.token)
		}
		if err != nil {
			return nil, Usagef("--%s: %w", tokenFlag, err)
		}
		opts = append(opts, nats.Token(text))
	}
	return opts, nil
}
