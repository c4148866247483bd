package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const secretsFile = "secrets.env"

// secrets are the variables that the compose file requires, from <folder>/secrets.env: lines NAME=value, as docker compose
// reads them. The file is made at the first start, complete or not at all; a missing one in a folder with a log would mean
// other keys, which scrip refuses. NATS_ISSUER is not in it: it follows from the code key.
func secrets(folder, compose string) (map[string]string, error) {
	required, err := Required(compose)
	if err != nil {
		return nil, err
	}
	follows := slices.Contains(required, natsauth.IssuerVariable)
	required = slices.DeleteFunc(required, func(name string) bool { return name == natsauth.IssuerVariable })
	path := filepath.Join(folder, secretsFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var text strings.Builder
		for _, name := range required {
			secret := make([]byte, 16)
			if name == datadir.KeyVariable {
				secret = make([]byte, 32)
			}
			if _, err := rand.Read(secret); err != nil {
				return nil, fmt.Errorf("making %s: %w", name, err)
			}
			fmt.Fprintf(&text, "%s=%s\n", name, hex.EncodeToString(secret))
		}
		raw = []byte(text.String())
		err = atomicfile.Create(path, raw, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("the passwords of the cluster: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = value
		}
	}
	for _, name := range required {
		if values[name] == "" {
			return nil, fmt.Errorf("%s has no line %s=…, which %s requires; add one", path, name, compose)
		}
	}
	if !follows {
		return values, nil
	}
	key, err := code.ParseKey(values[datadir.KeyVariable])
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", path, datadir.KeyVariable, err)
	}
	issuer, err := callout.IssuerOf(key)
	if err != nil {
		return nil, err
	}
	values[natsauth.IssuerVariable] = issuer.Public()
	return values, nil
}
