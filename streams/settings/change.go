package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/changelog"
)

// mostBy bounds Change.By: 128 bytes, as a customer's id.
const mostBy = 128

// Change is one change of one setting, as recorded in the history.
type Change struct {
	// N numbers the changes from 1, without gaps unless a key was written by hand. 0 where the key is no number.
	N uint64 `json:"change"`
	// Revision is the bucket's, rising.
	Revision uint64 `json:"revision"`
	Setting  string `json:"setting"`
	// Value is the new value; ToDefault restores the default.
	Value string `json:"value"`
	// Was is the value before, or ToDefault.
	Was string    `json:"was"`
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	// Ignored is the reason why the change is not in force, nor ever was; "" where it is or was.
	Ignored string `json:"ignored,omitempty"`
}

// record is the value of a key.
type record struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Was     string `json:"was"`
	By      string `json:"by"`
	At      string `json:"at"`
}

// encode returns the value under which a change is stored.
func (c *Change) encode() ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(record{c.Setting, c.Value, c.Was, c.By, c.At.UTC().Format(time.RFC3339Nano)})
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// parseMessage reads a message of the bucket.
func parseMessage(m changelog.Message) Change {
	c := parse(m.Key, m.Value, m.Deleted)
	c.Revision = m.Revision
	return c
}

// parse reads a key and its value. If it cannot be read Ignored has the reason; it is part of the history all the same.
func parse(key string, value []byte, deleted bool) Change {
	var c Change
	n, numbered := changelog.Number(key)
	c.N = n
	if err := c.decode(value); err != nil {
		c.Ignored = err.Error()
	}
	switch {
	case deleted:
		c.Ignored = "a deletion, and changes are never deleted; restore a default with `scrip config set " + "KEY " + ToDefault + "`"
	case !numbered:
		c.Ignored = fmt.Sprintf("its key %s is no number of a change, such as %s", quote(key), changelog.Key(1))
	}
	return c
}

func (c *Change) decode(value []byte) error {
	var r record
	d := json.NewDecoder(bytes.NewReader(value))
	// An unknown field may change the meaning of the known ones.
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		c.Value = cut(value)
		return fmt.Errorf("not understood, written by hand or by a newer version: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		c.Value = cut(value)
		return errors.New("not understood: there is more text after the change")
	}
	c.Setting, c.Value, c.Was, c.By = r.Setting, r.Value, r.Was, r.By
	at, err := time.Parse(time.RFC3339, r.At)
	if err != nil || at.UTC().Year() < 1 || at.UTC().Year() > 9999 {
		return fmt.Errorf("at is %s, expected a time as RFC 3339", quote(r.At))
	}
	c.At = at.UTC()
	return CheckBy(r.By)
}

// CheckBy returns an error if a text cannot be Change.By: it must be 1 to 128 bytes of printable text.
func CheckBy(by string) error {
	if by == "" || len(by) > mostBy || !utf8.ValidString(by) || strings.IndexFunc(by, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Errorf("by is %s, expected 1 to %d bytes of printable text that name the author", quote(by), mostBy)
	}
	return nil
}

// cut returns the part of an unreadable value that is shown.
func cut(value []byte) string {
	return wire.Shorten(strings.ToValidUTF8(string(value), "\uFFFD"), 200)
}
