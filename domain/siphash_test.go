package domain

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// The reference implementation's own vectors (vectors_sip64, vectors_sip128): key 00 01 … 0f, and entry i is the tag of
// the i bytes 00 01 … i-1. Lengths 0 to 17 pass through every remainder and one, two and three words.
var (
	sipVectors64 = []string{
		"310e0edd47db6f72", "fd67dc93c539f874", "5a4fa9d909806c0d", "2d7efbd796666785", "b7877127e09427cf",
		"8da699cd64557618", "cee3fe586e46c9cb", "37d1018bf50002ab", "6224939a79f5f593", "b0e4a90bdf82009e",
		"f3b9dd94c5bb5d7a", "a7ad6b22462fb3f4", "fbe50e86bc8f1e75", "903d84c02756ea14", "eef27a8e90ca23f7",
		"e545be4961ca29a1", "db9bc2577fcc2a3f", "9447be2cf5e99a69",
	}
	sipVectors128 = []string{
		"a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
		"8177228da4a45dc7fca38bdef60affe4", "9c70b60c5267a94e5f33b6b02985ed51",
		"f88164c12d9c8faf7d0f6e7c7bcd5579", "1368875980776f8854527a07690e9627",
		"14eeca338b208613485ea0308fd7a15e", "a1f1ebbed8dbc153c0b84aa61ff08239",
		"3b62a9ba6258f5610f83e264f31497b4", "264499060ad9baabc47f8b02bb6d71ed",
		"00110dc378146956c95447d3f3d0fbba", "0151c568386b6677a2b4dc6f81e5dc18",
		"d626b266905ef35882634df68532c125", "9869e247e9c08b10d029934fc4b952f7",
		"31fcefac66d7de9c7ec7485fe4494902", "5493e99933b0a8117e08ec0f97cfc3d9",
		"6ee2a4ca67b054bbfd3315bf85230577", "473d06e8738db89854c066c47ae47740",
	}
)

func sipBytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

var sipKey = [16]byte(sipBytes(16))

func TestSum64MatchesTheReferenceVectors(t *testing.T) {
	for n, want := range sipVectors64 {
		var tag [8]byte
		binary.LittleEndian.PutUint64(tag[:], sipHash64(sipKey, sipBytes(n)))
		if got := hex.EncodeToString(tag[:]); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

func TestSum128MatchesTheReferenceVectors(t *testing.T) {
	for n, want := range sipVectors128 {
		sum := sipHash128(sipKey, sipBytes(n))
		var tag [16]byte
		binary.LittleEndian.PutUint64(tag[:8], sum[0])
		binary.LittleEndian.PutUint64(tag[8:], sum[1])
		if got := hex.EncodeToString(tag[:]); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

// Customer ids arrive as strings from JSON and as bytes from a snapshot: they must land on the same hash.
func TestStringAndBytesHashAlike(t *testing.T) {
	type customerID string
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		var key [16]byte
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		if a, b := sipHash64(key, p), sipHash64(key, customerID(p)); a != b {
			t.Fatalf("Sum64 of %x: bytes %x, string %x", p, a, b)
		}
		if a, b := sipHash128(key, p), sipHash128(key, customerID(p)); a != b {
			t.Fatalf("Sum128 of %x: bytes %x, string %x", p, a, b)
		}
	}
}

func TestHashingAllocatesNothing(t *testing.T) {
	id, raw := "customer-000000000017", []byte("018f3b2e-9f5c-7cc0-a1b2-c3d4e5f60718")
	var sink uint64
	if n := testing.AllocsPerRun(100, func() {
		sink += sipHash64(sipKey, id) + sipHash64(sipKey, raw) + sipHash128(sipKey, id)[0] + sipHash128(sipKey, raw)[1]
	}); n != 0 {
		t.Errorf("%v allocations, want 0 (sum %x)", n, sink)
	}
}
