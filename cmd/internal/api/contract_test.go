package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var contractRoute = regexp.MustCompile("(?m)^\\| `([A-Z]+) (/v1[^`]*)` \\| `([a-z.]+)` \\|")

// TestTheContractHasEveryRoute: with the operation that it needs.
func TestTheContractHasEveryRoute(t *testing.T) {
	raw, err := os.ReadFile("../../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	page := map[string]string{}
	for _, m := range contractRoute.FindAllStringSubmatch(string(raw), -1) {
		page[m[1]+" "+m[2]] = m[3]
	}
	for _, r := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		name := r.Method + " " + r.Path
		if r.Operation.String() != "none" && page[name] != r.Operation.String() {
			t.Errorf("CONTRACT.md has %s with %q, the code with %s", name, page[name], r.Operation)
		}
		delete(page, name)
	}
	for name := range page {
		t.Errorf("CONTRACT.md has %s, the code has not", name)
	}
}

var contractCode = regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([0-9]{3}) \\|")

// TestTheContractHasEveryCode: with the status that it has over HTTP.
func TestTheContractHasEveryCode(t *testing.T) {
	raw, err := os.ReadFile("../../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	page, code := map[string]string{}, map[string]string{}
	for _, m := range contractCode.FindAllStringSubmatch(string(raw), -1) {
		page[m[1]] = m[2]
	}
	for _, c := range web.Codes() {
		code[string(c)] = fmt.Sprint(web.KindOf(c).Status)
	}
	for _, c := range ops.Codes {
		code[string(c)] = fmt.Sprint(web.KindOf(web.Code(c)).Status)
	}
	if !maps.Equal(page, code) {
		t.Errorf("CONTRACT.md has\n%v\nthe code\n%v", page, code)
	}
}
