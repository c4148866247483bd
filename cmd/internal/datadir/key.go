package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Key is a code key and its source.
type Key struct {
	Key  [32]byte
	From string // for messages: the variable or the file
	// Made is true if the key was generated now, for a log that is not created yet.
	Made bool
}

// KeyVariable names the environment variable that replaces the key file.
const KeyVariable = "SCRIP_CODE_KEY"

// Key returns the code key: given (the variable's value) if not empty, else the file's. It generates a new one only if
// there is no log; fingerprint is that of the existing log's key, "" = no log.
//
// The file is on disk before the log is created, so a crash in between leaves a key without a log, which the next start
// uses. In the opposite order codes would be lost.
func (d *Dir) Key(given, fingerprint string) (Key, error) {
	path := d.file(keyFile)
	raw, err := os.ReadFile(path)
	k := Key{From: path}
	switch {
	case given != "":
		k.From = KeyVariable
		if k.Key, err = code.ParseKey(given); err != nil {
			return Key{}, fmt.Errorf("%s: %w", KeyVariable, err)
		}
	case err == nil:
		if k.Key, err = code.ParseKey(string(raw)); err != nil {
			return Key{}, fmt.Errorf("%s: %w", path, err)
		}
		if err := tighten(path); err != nil {
			return Key{}, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return Key{}, fmt.Errorf("reading the code key: %w", err)
	case fingerprint != "":
		return Key{}, fmt.Errorf("the log exists and was created with the code key of fingerprint %s, but there is no %s and %s is not set: copy the code.key of the server that created the log, or set the variable to its 64 hex digits",
			fingerprint, path, KeyVariable)
	default:
		if _, err := rand.Read(k.Key[:]); err != nil {
			return Key{}, fmt.Errorf("generating a code key: %w", err)
		}
		if err := atomicfile.Create(path, []byte(hex.EncodeToString(k.Key[:])+"\n"), ownerOnly); err != nil {
			return Key{}, fmt.Errorf("storing the new code key: %w", err)
		}
		k.Made = true
	}
	if have := code.Fingerprint(k.Key); fingerprint != "" && have != fingerprint {
		return Key{}, fmt.Errorf("the code key of %s has fingerprint %s, but the log was created with %s: no code could be decoded; copy the code.key of the server that created the log",
			k.From, have, fingerprint)
	}
	return k, nil
}

// FindKey reads a code key without the directory's lock: given (the variable's value) if not empty, else the file's in
// dir. found is false if there is neither.
func FindKey(dir, given string) (k Key, found bool, err error) {
	k.From = KeyVariable
	if given == "" {
		k.From = filepath.Join(dir, keyFile)
		raw, err := os.ReadFile(k.From)
		if errors.Is(err, fs.ErrNotExist) {
			return Key{}, false, nil
		}
		if err != nil {
			return Key{}, false, fmt.Errorf("reading the code key: %w; run this as the server's user, or set %s", err, KeyVariable)
		}
		given = string(raw)
	}
	if k.Key, err = code.ParseKey(given); err != nil {
		return Key{}, false, fmt.Errorf("%s: %w", k.From, err)
	}
	return k, true, nil
}

// Unlock returns the log with its seal key, if its code key is found: see FindKey. A reader that needs no code works
// without it, but cannot detect forged messages; that is logged. dir is the data directory.
//
// A given seal key (see SealKey) is used instead; it is an error if it is invalid, or of another log.
func Unlock(of topology.Log, dir, given, sealKey string, log *slog.Logger) (topology.Log, error) {
	if sealKey != "" {
		return of.WithSealKey(sealKey)
	}
	key, found, err := FindKey(dir, given)
	switch {
	case err != nil:
		log.Info("the seals of messages are not checked here", "err", err)
	case !found:
		log.Debug("the seals of messages are not checked here: no code key and no seal key", "dir", dir, "variables", KeyVariable+" "+SealKeyVariable)
	case code.Fingerprint(key.Key) != of.KeyFingerprint:
		log.Info("the seals of messages are not checked here: the code key is that of another log", "key", key.From)
	default:
		return of.WithKey(key.Key), nil
	}
	return of, nil
}

// SealKeyVariable names the environment variable with a seal key; with _FILE after it, the variable with a file's name.
const SealKeyVariable = "SCRIP_SEAL_KEY"

// SealKeyFlag is the flag that names a file with a seal key, and SealKeyUsage its help text.
const (
	SealKeyFlag  = "seal-key-file"
	SealKeyUsage = "`FILE` with the seal key, as printed by scrip key seal; checks seals of messages without the code key"
)

// SealKey reads a seal key: from file if that is not empty, else by Variable. "" = none.
func SealKey(env func(string) (string, bool), file string) (string, error) {
	if file == "" {
		return Variable(env, SealKeyVariable)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the seal key: %w", err)
	}
	if text := strings.TrimSpace(string(raw)); text != "" {
		return text, nil
	}
	return "", fmt.Errorf("reading the seal key: %s is empty; print one with scrip key seal", file)
}

// PutKey writes the code key of a restored log. It never overwrites another key.
func (d *Dir) PutKey(key [32]byte) error {
	path := d.file(keyFile)
	have, found, err := FindKey(d.path, "")
	switch {
	case err != nil:
		return err
	case found && have.Key == key:
		return nil
	case found:
		return fmt.Errorf("%s is another key than that of the log, which has fingerprint %s; restore into another directory with --data DIR, or move that file", path, code.Fingerprint(key))
	}
	if err := atomicfile.Create(path, []byte(hex.EncodeToString(key[:])+"\n"), ownerOnly); err != nil {
		return fmt.Errorf("writing the code key: %w", err)
	}
	return nil
}

// DiscardKey removes a key that was generated now, after another server created the log first, with its own key.
func (d *Dir) DiscardKey(k Key) error {
	if !k.Made {
		return nil
	}
	return atomicfile.Remove(d.file(keyFile))
}
