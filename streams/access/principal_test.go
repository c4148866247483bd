package access

import "testing"

// TestAudience: a sender delivers under the name that its own starts with; other roles under none.
func TestAudience(t *testing.T) {
	for name, want := range map[string]string{
		"mobile": "mobile", "mobile, Berlin": "mobile", "push_eu-1 (new)": "push_eu-1", "Ωmega": "", " x": "", "a.b": "a", "*": "",
	} {
		if got := (Principal{Name: name, Role: Sender}).Audience(); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := (Principal{Name: name, Role: Producer}).Audience(); got != "" {
			t.Errorf("a producer %q: %q", name, got)
		}
	}
}
