package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	credentialsFile = "credentials"
	// generatedUser is the user name of generated credentials.
	generatedUser = "scrip"
	// generatedBytes is the length of a generated password, before it is written as hex.
	generatedBytes = 24
)

// Credentials are a user name and a password. The zero value is none.
type Credentials struct{ User, Password string }

// String is USER:PASSWORD, "" for none.
func (c Credentials) String() string {
	if c == (Credentials{}) {
		return ""
	}
	return c.User + ":" + c.Password
}

// ParseCredentials reads USER:PASSWORD. The user name has no colon, the password may have.
func ParseCredentials(s string) (Credentials, error) {
	user, password, ok := strings.Cut(s, ":")
	if !ok || user == "" || password == "" {
		return Credentials{}, errors.New("must be USER:PASSWORD")
	}
	return Credentials{user, password}, nil
}

// Credentials returns the credentials that clients must give, from <data>/credentials (0600). If the file does not exist
// it is created with new ones. To change them, stop the server, remove or edit the file, and start again.
//
// A crash leaves the file complete or missing, and a missing one is created at the next start, before clients can connect.
func (d *Dir) Credentials() (Credentials, error) {
	path := d.file(credentialsFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.makeCredentials()
	case err != nil:
		return Credentials{}, fmt.Errorf("reading the server's credentials: %w", err)
	}
	if err := tighten(path); err != nil {
		return Credentials{}, err
	}
	c, err := ParseCredentials(strings.TrimSpace(string(raw)))
	if err != nil {
		return Credentials{}, fmt.Errorf("%s %w; correct it, or remove it to get new ones", path, err)
	}
	return c, nil
}

func (d *Dir) makeCredentials() (Credentials, error) {
	raw := make([]byte, generatedBytes)
	if _, err := rand.Read(raw); err != nil {
		return Credentials{}, fmt.Errorf("generating credentials: %w", err)
	}
	c := Credentials{generatedUser, hex.EncodeToString(raw)}
	if err := atomicfile.Create(d.file(credentialsFile), []byte(c.String()+"\n"), ownerOnly); err != nil {
		return Credentials{}, fmt.Errorf("storing the server's credentials: %w", err)
	}
	return c, nil
}

// CredentialsPath is the path of the credentials file in a data directory, "" if there is none. It needs no right to read
// the file.
func CredentialsPath(dir string) string {
	path, err := filepath.Abs(filepath.Join(dir, credentialsFile))
	if err != nil {
		return ""
	}
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return path
}

// tighten removes the rights of other users to a secret file.
func tighten(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil // the caller's read reports the error
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("%s is readable by other users, and changing its mode failed (%w); as its owner: chmod 600", path, err)
	}
	return nil
}

// Variable looks up an environment variable: its value, or the content of the file that the variable NAME_FILE names,
// without white space around it, so that a secret need be neither in the environment nor on a command line.
// Empty is the same as not set; the variable itself has precedence.
func Variable(env func(string) (string, bool), name string) (string, error) {
	if value, _ := env(name); value != "" {
		return value, nil
	}
	file, _ := env(name + "_FILE")
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the file of %s_FILE: %w", name, err)
	}
	return strings.TrimSpace(string(raw)), nil
}
