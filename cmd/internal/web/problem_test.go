package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestEveryCodeHasARow: each refusal of the log and each code of this package has one, and the table has no others.
func TestEveryCodeHasARow(t *testing.T) {
	want := map[Code]bool{}
	for r := range wire.Refusals() {
		want[Code(r)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, parser.SkipObjectResolution)
	streamtest.Must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				streamtest.Must(t, err)
				want[Code(text)] = true
			}
		}
		return true
	})
	for c := range want {
		k, ok := kinds[c]
		if !ok {
			t.Errorf("%s has no row in kinds", c)
		} else if k.Status < 400 || http.StatusText(k.Status) == "" {
			t.Errorf("%s: %d is no status of an error", c, k.Status)
		} else if retry := k.Status == 503 || k.Status == 429; retry != (k.RetryAfter > 0) || retry && k.Effect == "" {
			t.Errorf("%s: %d needs Retry-After and an effect, and no other status has Retry-After: %+v", c, k.Status, k)
		}
	}
	for c := range kinds {
		if !want[c] {
			t.Errorf("kinds has %s, which is neither a refusal nor a code", c)
		}
	}
	if k := KindOf("of_a_newer_lane"); k.Status != http.StatusConflict || k.Effect != "" {
		t.Errorf("an unknown refusal is %+v", k)
	}
}

func TestProblemsOfCommands(t *testing.T) {
	away := errors.New("the connection is down")
	for name, c := range map[string]struct {
		p      *Problem
		status int
		code   Code
		effect Effect
		retry  string
		at     string
	}{
		"sold out":        {Refused(&wire.Outcome{ID: "a", Campaign: "s", Refusal: wire.SoldOut, Message: "all gone"}), 409, "sold_out", "", "", ""},
		"no disk":         {Refused(&wire.Outcome{ID: "a", Refusal: wire.NotDurable}), 503, "not_durable", NoEffect, "1", ""},
		"lost answer":     {Failed(&command.UnknownError{ID: "a", Cause: command.ErrDeadline}, "a"), 503, UnknownOutcome, UnknownEffect, "1", ""},
		"never sent":      {Failed(&command.NotSentError{ID: "a", Cause: away}, "a"), 503, Unavailable, NoEffect, "1", ""},
		"not stored":      {Failed(&command.NotSentError{ID: "a", Cause: away, Reached: true}, "a"), 503, "not_durable", NoEffect, "1", ""},
		"full":            {Failed(&command.NotSentError{ID: "a", Cause: fmt.Errorf("%w: 7", command.ErrFull)}, "a"), 429, Overloaded, NoEffect, "1", ""},
		"no JSON":         {Invalid(wire.ParseCommand([]byte(`{`), wire.Defaults{}, &wire.Command{}), "body", "", ""), 400, Malformed, "", "", "body"},
		"unknown field":   {Invalid(wire.ParseCommand([]byte(`{"x":1}`), wire.Defaults{}, &wire.Command{}), "body", "", ""), 400, Malformed, "", "", "body.x"},
		"value too short": {Invalid(wire.ParseCommand([]byte(`{"id":"a","type":"claim","campaign":"s","customer_id":""}`), wire.Defaults{}, &wire.Command{}), "body", "a", "s"), 422, "invalid", "", "", "body.customer_id"},
	} {
		at := ""
		if len(c.p.Errors) > 0 {
			at = c.p.Errors[0].Location
		}
		w := httptest.NewRecorder()
		c.p.Write(w)
		h := w.Result().Header
		if w.Code != c.status || c.p.Status != c.status || c.p.Code != c.code || c.p.Effect != c.effect || at != c.at {
			t.Errorf("%s: %d %+v", name, w.Code, c.p)
		}
		if h.Get("Content-Type") != ProblemType || h.Get("Cache-Control") != "no-store" || h.Get("Retry-After") != c.retry {
			t.Errorf("%s: headers %v", name, h)
		}
		var body Problem
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Code != c.code || body.Title != http.StatusText(c.status) {
			t.Errorf("%s: %s, %v", name, w.Body, err)
		}
	}
}
