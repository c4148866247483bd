package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"

	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

const sealInfo = "scrip webhooks v1"

// Key seals the secrets of endpoints: AES-256-GCM under HKDF-SHA-256 of the code key and the log's UUID. It cannot be derived
// from the seal key.
type Key struct{ box cipher.AEAD }

// NewKey derives the key of a log.
func NewKey(codeKey [32]byte, log string) *Key {
	raw, err := hkdf.Key(sha256.New, codeKey[:], []byte(log), sealInfo, 32)
	if err != nil {
		panic(err) // only for lengths above 255 hashes
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		panic(err) // only for another length of key
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only for another size of block
	}
	return &Key{box}
}

// seal seals the secret of one endpoint; it cannot be opened as another's.
func (k *Key) seal(s signature.Secret, endpoint string) []byte {
	nonce := make([]byte, k.box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return k.box.Seal(nonce, nonce, s.Bytes(), []byte(endpoint))
}

func (k *Key) open(sealed []byte, endpoint string) (signature.Secret, error) {
	n := k.box.NonceSize()
	if len(sealed) < n {
		return signature.Secret{}, errSealed
	}
	key, err := k.box.Open(nil, sealed[:n], sealed[n:], []byte(endpoint))
	if err != nil {
		return signature.Secret{}, errSealed
	}
	return signature.FromBytes(key), nil
}

var errSealed = errors.New("the secret was sealed with another code key; scrip webhook rotate makes a new one")
