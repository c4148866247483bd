package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
)

// Box encrypts small values that servers store or hand out: AES-256-GCM, each value with a nonce of its own. It is safe for
// concurrent use.
type Box struct{ cipher cipher.AEAD }

// ErrBox: a value was encrypted under another key, or about another thing.
var ErrBox = errors.New("the value was sealed with another key")

// NewBox derives a key from a secret by HKDF-SHA-256, for one purpose in one log.
func NewBox(secret [32]byte, log, purpose string) *Box {
	block, err := aes.NewCipher(expand(secret, log, purpose, 32))
	if err != nil {
		panic(err) // only for another length of key
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only for another size of block
	}
	return &Box{box}
}

// Seal encrypts a text, which is opened only as one about the same thing.
func (b *Box) Seal(text []byte, about string) []byte {
	nonce := make([]byte, b.cipher.NonceSize(), b.cipher.NonceSize()+len(text)+b.cipher.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return b.cipher.Seal(nonce, nonce, text, []byte(about))
}

// Open decrypts what Seal returned. The error is ErrBox.
func (b *Box) Open(sealed []byte, about string) ([]byte, error) {
	n := b.cipher.NonceSize()
	if len(sealed) < n {
		return nil, ErrBox
	}
	text, err := b.cipher.Open([]byte{}, sealed[:n], sealed[n:], []byte(about))
	if err != nil {
		return nil, ErrBox
	}
	return text, nil
}
