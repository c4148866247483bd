package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const secretsFile = "secrets.env"

// secrets are the variables that the compose file requires, from <folder>/secrets.env: lines NAME=value, as docker compose
// reads them. The file is made at the first start, complete or not at all; a missing one in a folder with a log would mean
// other keys, which scrip refuses.
func secrets(folder, compose string) (map[string]string, error) {
	required, err := Required(compose)
	if err != nil {
		return nil, err
	}
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
	return values, nil
}
