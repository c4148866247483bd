package console

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestShortPages: a page that its time has ended names how far it has looked and leads on; it does not look like an end.
func TestShortPages(t *testing.T) {
	v := &view{c: &Console{}, r: httptest.NewRequest("GET", "/campaigns/a/coupons?status=voided", nil)}
	show := func(name string, about map[string]any) string {
		t.Helper()
		about["View"] = v
		var b strings.Builder
		if err := templates["coupons"].ExecuteTemplate(&b, name, about); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, c := range []struct {
		name  string
		about map[string]any
		has   []string
		not   string
	}{
		{"pager", map[string]any{"Next": "x", "Looked": "120000", "Order": "up to number"}, []string{"up to number 120000", "not known yet", "/campaigns/a/coupons?after=x&amp;status=voided", "Go on"}, "Next page"},
		{"pager", map[string]any{"Next": "x"}, []string{"Next page"}, "Go on"},
		{"pager", map[string]any{}, nil, "page"},
		{"coupons", map[string]any{"Looked": "120000"}, []string{"None was found so far"}, "There is none"},
		{"coupons", map[string]any{}, []string{"There is none"}, "so far"},
	} {
		got := show(c.name, c.about)
		for _, text := range c.has {
			if !strings.Contains(got, text) {
				t.Errorf("%s %v has no %q: %s", c.name, c.about, text, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s %v has %q: %s", c.name, c.about, c.not, got)
		}
	}
}
