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
	// madeUser is the user name of credentials that were made here.
	madeUser = "scrip"
	// madeBytes is how long a password that was made here is, before it is written as hex.
	madeBytes = 24
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

// ParseCredentials reads USER:PASSWORD. The user name holds no colon, the password may.
func ParseCredentials(s string) (Credentials, error) {
	user, password, ok := strings.Cut(s, ":")
	if !ok || user == "" || password == "" {
		return Credentials{}, errors.New("must be USER:PASSWORD")
	}
	return Credentials{user, password}, nil
}

// Credentials returns what this server asks of its clients, from <data>/credentials (0600). Where there is no such file
// new ones are made. To change them, stop the server, remove or edit the file, and start again.
//
// A crash leaves the file whole or missing, and a missing one is made at the next start, before anybody can connect.
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
		return Credentials{}, fmt.Errorf("%s %w; mend it or remove it, new ones are then made", path, err)
	}
	return c, nil
}

func (d *Dir) makeCredentials() (Credentials, error) {
	raw := make([]byte, madeBytes)
	if _, err := rand.Read(raw); err != nil {
		return Credentials{}, fmt.Errorf("making credentials: %w", err)
	}
	c := Credentials{madeUser, hex.EncodeToString(raw)}
	if err := atomicfile.Create(d.file(credentialsFile), []byte(c.String()+"\n"), ownerOnly); err != nil {
		return Credentials{}, fmt.Errorf("keeping the server's credentials: %w", err)
	}
	return c, nil
}

// CredentialsPath is where the server on a data directory keeps its credentials, "" where it keeps none. Those who may
// not read the file may find it nevertheless.
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

// tighten takes the rights of others to a secret file away.
func tighten(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil // who reads it next sees what is wrong
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("%s can be read by others and that can not be changed (%w); its owner must: chmod 600", path, err)
	}
	return nil
}
