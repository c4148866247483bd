package backup

import (
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/seed-4a2410e3/scrip/streams/seal"
)

const (
	// keyPurpose is the purpose of the key that is derived from the code key and the log, for all files of its backups.
	keyPurpose = "scrip backup v1"
	// stanza is the type of the part of a file's head that has the file's key.
	stanza = "scrip"
)

// cipher encrypts and decrypts the file with a name. The file's key, which age makes, is encrypted under the log's key and
// the name, so that no file is taken for another.
type cipher struct {
	box  *seal.Box
	name string
}

func newBox(key [32]byte, log string) *seal.Box { return seal.NewBox(key, log, keyPurpose) }

// Wrap is the recipient's part of age.
func (c cipher) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	return []*age.Stanza{{Type: stanza, Body: c.box.Seal(fileKey, c.name)}}, nil
}

// Unwrap is the identity's part of age.
func (c cipher) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) == 1 && stanzas[0].Type == stanza {
		if fileKey, err := c.box.Open(stanzas[0].Body, c.name); err == nil {
			return fileKey, nil
		}
	}
	return nil, fmt.Errorf("%w: it was encrypted with another key, or as another file", age.ErrIncorrectIdentity)
}

// encrypt writes the file with a name: what fill writes, encrypted in chunks.
func encrypt(to io.Writer, box *seal.Box, name string, fill func(io.Writer) error) error {
	text, err := age.Encrypt(to, cipher{box, name})
	if err != nil {
		return err
	}
	if err := fill(text); err != nil {
		return err
	}
	return text.Close()
}

// decrypt reads what encrypt wrote. Its end is reported after the last chunk alone.
func decrypt(from io.Reader, box *seal.Box, name string) (io.Reader, error) {
	return age.Decrypt(from, cipher{box, name})
}
