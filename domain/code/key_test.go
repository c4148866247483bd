package code

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	digits := hex.EncodeToString(testKey[:])
	for _, s := range []string{digits, strings.ToUpper(digits), digits + "\n", " \t" + digits + "\r\n"} {
		if got, err := ParseKey(s); err != nil || got != testKey {
			t.Errorf("%q: got %x, %v", s, got, err)
		}
	}
}

// The errors end in logs: they name what to do and hold nothing of the key.
func TestParseKeyErrorsSayWhatToDoAndKeepTheSecret(t *testing.T) {
	digits := strings.Repeat("fade", 16)
	for s, want := range map[string]string{
		"":                               "empty",
		" \n":                            "empty",
		digits[1:]:                       "63 characters",
		digits + "0":                     "65 characters",
		"0x" + digits:                    "66 characters",
		digits[:63] + "q":                "no hex digit",
		digits[:30] + "  " + digits[32:]: "no hex digit",
	} {
		got, err := ParseKey(s)
		if err == nil || got != [32]byte{} {
			t.Errorf("%q: got %x, %v", s, got, err)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "set SCRIP_CODE_KEY") {
			t.Errorf("%q: error %q", s, err)
		}
		if strings.Contains(err.Error(), "fade") || strings.Contains(err.Error(), "'q'") {
			t.Errorf("the error shows the key: %q", err)
		}
	}
}

// The fingerprint is in the metadata of every stream: it must never come out differently.
func TestFingerprintGolden(t *testing.T) {
	if got, want := Fingerprint(testKey), "5c904580d28eb40d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := testKey
	other[0] ^= 0x80
	if Fingerprint(other) == Fingerprint(testKey) {
		t.Error("two keys have one fingerprint")
	}
}
