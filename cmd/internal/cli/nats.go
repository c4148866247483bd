package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
)

// NATSFlags are the flags for NATS servers that require more than a user and a password in the URL.
type NATSFlags struct {
	ca, creds, nkey, token string
	// More are further options of connections, of tests.
	More []nats.Option
}

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

// CA is the absolute path of the file with the certificates that sign the NATS server's; "" = those of the system.
func (f *NATSFlags) CA() string {
	if f.ca == "" {
		return ""
	}
	if path, err := filepath.Abs(f.ca); err == nil {
		return path
	}
	return f.ca
}

// Options returns the options of a connection. Its errors name the flag.
func (f *NATSFlags) Options() (opts []nats.Option, err error) {
	opts = append(opts, f.More...)
	given := ""
	for _, c := range []struct {
		flag, file string
		option     func(file string) (nats.Option, error)
	}{
		{caFlag, f.ca, authority}, {credsFlag, f.creds, credentials}, {nkeyFlag, f.nkey, nats.NkeyOptionFromSeed}, {tokenFlag, f.token, token},
	} {
		if c.file == "" {
			continue
		}
		if c.flag != caFlag && given != "" {
			return nil, Usagef("give one of --%s, --%s and --%s", credsFlag, nkeyFlag, tokenFlag)
		}
		if c.flag != caFlag {
			given = c.flag
		}
		option, err := c.option(c.file)
		if err != nil {
			return nil, Usagef("--%s: %w", c.flag, err)
		}
		opts = append(opts, option)
	}
	return opts, nil
}

func authority(file string) (nats.Option, error) {
	config, err := certs.SignedBy(file)
	return nats.Secure(config), err
}

func credentials(file string) (nats.Option, error) {
	_, err := os.Stat(file)
	return nats.UserCredentials(file), err
}

func token(file string) (nats.Option, error) {
	raw, err := os.ReadFile(file)
	text := strings.TrimSpace(string(raw))
	if err == nil && text == "" {
		err = fmt.Errorf("%s is empty", file)
	}
	return nats.Token(text), err
}
