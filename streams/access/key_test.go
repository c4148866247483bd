package access

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func TestKeysHaveTheFormThatScannersKnow(t *testing.T) {
	pattern := regexp.MustCompile("^" + Pattern + "$")
	seen := map[string]bool{}
	for _, role := range Keyed {
		for range 100 {
			key, id := newKey(role)
			if !pattern.MatchString(key) {
				t.Fatalf("%s does not match %s", key, Pattern)
			}
			got, gotID, err := ParseKey(key)
			if err != nil || got != role || gotID != id || !ValidID(id) || seen[id] {
				t.Fatalf("%s: %v %s %v, id %s", key, got, gotID, err, id)
			}
			seen[id] = true
		}
	}
}

// TestAMistypedKeyIsRefused: each symbol changed, each neighbouring pair exchanged, cut off, longer, in another case, of
// another role.
func TestAMistypedKeyIsRefused(t *testing.T) {
	key, _ := keyOf(Producer, [idBytes + secret + sumBytes]byte(bytes.Repeat([]byte{0x5a, 0x13, 0xc7}, 10)))
	var bad []string
	for i := range key {
		if other := strings.IndexByte(alphabet, key[i]); other >= 0 {
			bad = append(bad, key[:i]+string(alphabet[(other+1)%len(alphabet)])+key[i+1:])
		}
		if i+1 < len(key) && key[i] != key[i+1] {
			bad = append(bad, key[:i]+key[i+1:i+2]+key[i:i+1]+key[i+2:])
		}
	}
	bad = append(bad, "", "sk_", "sk_producer_", key[:len(key)-1], key+"0", " "+key, key+"\n", key[:20]+"\n"+key[21:], strings.ToUpper(key),
		strings.Replace(key, "producer", "operator", 1), strings.Replace(key, "producer", "server", 1), strings.Replace(key, "sk_", "pk_", 1),
		"sk_producer_"+strings.Repeat("é", 24), strings.TrimPrefix(key, "sk_"))
	for _, b := range bad {
		if _, _, err := ParseKey(b); err != ErrNoKey {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, role := range Keyed {
		key, _ := newKey(role)
		f.Add(key)
	}
	f.Add("sk_producer_0")
	f.Add("sk__")
	f.Fuzz(func(t *testing.T, key string) {
		role, id, err := ParseKey(key)
		if err != nil {
			if role != NoRole || id != "" {
				t.Fatalf("%q: %v %q beside an error", key, role, id)
			}
			return
		}
		if !regexp.MustCompile("^"+Pattern+"$").MatchString(key) || !ValidID(id) || !strings.Contains(key, "_"+id) {
			t.Fatalf("%q was accepted as a %v with id %q", key, role, id)
		}
	})
}
