package cli

import "testing"

func TestNoControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"plain, Zoë, 日本 → ok":   "plain, Zoë, 日本 → ok",
		"a\x1b[2Jb":             "a?[2Jb",
		"a\u009b31mb":           "a?31mb",
		"bell\a back\b del\x7f": "bell? back? del?",
		"turned \u202e around":  "turned ? around",
		"cut \xc3":              "cut ?",
		"two\tcolumns\r":        "two columns ",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
		if got := Text(text + "\n" + text); got != want+"\n"+want {
			t.Errorf("two lines of %q are shown as %q", text, got)
		}
	}
	if got := Line("one\ntwo"); got != "one two" {
		t.Errorf("%q", got)
	}
}
