package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var codeSpan = regexp.MustCompile("`([^`]+)`")

// words returns the words in the code spans of a text.
func words(text string) (list []string) {
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		list = append(list, strings.Fields(span[1])...)
	}
	return list
}

// contractRows returns the cells of the first table below a heading of CONTRACT.md, without its head.
func contractRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	raw, err := os.ReadFile("../CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "\n"+heading+"\n")
	_, table, there := strings.Cut(text, "\n|---")
	if !found || !there {
		t.Fatalf("CONTRACT.md has no table below %q", heading)
	}
	for line := range strings.Lines(table[strings.Index(table, "\n")+1:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "| \n"), " | ") {
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	return rows
}

// firstColumn returns the words in the first column of such a table.
func firstColumn(t *testing.T, heading string) (list []string) {
	t.Helper()
	for _, row := range contractRows(t, heading) {
		list = append(list, words(row[0])...)
	}
	return list
}

// constants returns the values of the package's string constants that want accepts, by their name and type.
func constants(t *testing.T, want func(name, kind string) bool) (list []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				return true
			}
			kind := ""
			if id, ok := spec.Type.(*ast.Ident); ok {
				kind = id.Name
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			if ok && value.Kind == token.STRING && want(spec.Names[0].Name, kind) {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, text)
			}
			return true
		})
	}
	return list
}

// same reports what one list has and the other has not.
func same(t *testing.T, what string, page, code []string) {
	t.Helper()
	for _, name := range code {
		if !slices.Contains(page, name) {
			t.Errorf("%s %q is in the code and not in CONTRACT.md", what, name)
		}
	}
	for _, name := range page {
		if !slices.Contains(code, name) {
			t.Errorf("%s %q is in CONTRACT.md and not in the code", what, name)
		}
	}
	if len(code) == 0 {
		t.Errorf("the code has no %s", what)
	}
}

// TestTheContractNamesEverything: commands, events, statuses and settings of CONTRACT.md are those of the code, and every
// refusal and field of the code occurs in it.
func TestTheContractNamesEverything(t *testing.T) {
	var commandNames, eventNames, fieldNames []string
	for c := range Commands() {
		commandNames = append(commandNames, c.String())
	}
	for e := NoEvent + 1; e < numEvents; e++ {
		eventNames = append(eventNames, e.String())
	}
	for f := fUnknown + 1; f < numFields; f++ {
		fieldNames = append(fieldNames, f.String())
	}
	same(t, "command", firstColumn(t, "## Commands"), commandNames)
	same(t, "event", firstColumn(t, "## Events"), eventNames)
	same(t, "status", firstColumn(t, "## Outcomes"), constants(t, func(name, _ string) bool { return strings.HasPrefix(name, "Status") }))
	var settings []string
	for _, f := range settingFields {
		settings = append(settings, f.String())
	}
	raw, err := os.ReadFile("../CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\nSettings of a campaign")
	table, _, _ := strings.Cut(rest, "\n\nA generated code")
	for _, name := range settings {
		if !strings.Contains(table, "\n| `"+name+"` |") {
			t.Errorf("setting %q is in the code and not in CONTRACT.md", name)
		}
	}
	all := words(string(raw))
	refusals := constants(t, func(_, kind string) bool { return kind == "Refusal" })
	if len(refusals) < 20 {
		t.Errorf("%d refusals were found in the code", len(refusals))
	}
	listed := slices.Clone(refusals)
	for r := range Refusals() {
		if i := slices.Index(listed, string(r)); i < 0 {
			t.Errorf("the list of refusals has %q twice, or there is no such refusal", r)
		} else {
			listed[i] = ""
		}
	}
	for _, name := range listed {
		if name != "" {
			t.Errorf("the list of refusals lacks %q", name)
		}
	}
	for _, name := range append(refusals, fieldNames...) {
		if !slices.Contains(all, name) {
			t.Errorf("%q is in the code and not in CONTRACT.md", name)
		}
	}
}

// TestTheContractHasTheFieldsOfCommands: what a command needs and takes, and who may send it.
func TestTheContractHasTheFieldsOfCommands(t *testing.T) {
	list := func(set fieldSet) (names []string) {
		for ; set != 0; set &= set - 1 {
			names = append(names, set.first().String())
		}
		return names
	}
	scopes := map[string]Scope{"producer": ScopeProducer, "operator": ScopeOperator, "scheduler": ScopeScheduler}
	for _, row := range contractRows(t, "## Commands") {
		for _, name := range words(row[0]) {
			c := CommandNamed([]byte(name))
			for scope, s := range scopes {
				if s.Allows(c) != (row[1] == scope) {
					t.Errorf("%s: CONTRACT.md has scope %s", name, row[1])
				}
			}
			must := words(row[2])
			for _, field := range list(required[c]) {
				if !slices.Contains(must, field) {
					t.Errorf("%s: CONTRACT.md lacks the required %s", name, field)
				}
			}
			if c == CreateCampaign || c == UpdateCampaign {
				continue // all settings, which have a table of their own
			}
			if len(must) != len(list(required[c])) {
				t.Errorf("%s: CONTRACT.md requires %v, the code %v", name, must, list(required[c]))
			}
			var may []string
			if len(row) > 3 {
				may = words(row[3])
			}
			for _, field := range list(allowed[c] &^ required[c] &^ fields(fID, fType, fRequestID)) {
				if field == "campaign" && !c.HasCode() {
					continue
				}
				if !slices.Contains(may, field) {
					t.Errorf("%s: CONTRACT.md lacks the optional %s", name, field)
				}
			}
		}
	}
}

// TestTheContractHasTheAnswersOfCommands: which refusals a command may have, and its version.
func TestTheContractHasTheAnswersOfCommands(t *testing.T) {
	page := map[string][]string{}
	for _, row := range append(contractRows(t, "### Refusals, in the order of the checks"), contractRows(t, "**A repeat never claims what is over.** The same id again is refused where what it did no longer")...) {
		for _, name := range words(row[0]) {
			page[name] = append(page[name], words(row[1])...)
		}
	}
	for c := range Commands() {
		var want, got []string
		for _, r := range refusalNames {
			if r != string(Invalid) && r != string(IdempotencyKeyReused) && slices.Contains(page[c.String()], r) {
				want = append(want, r)
			}
			if slices.Contains(answers[c].refusals, Refusal(r)) {
				got = append(got, r)
			}
		}
		if c.Spec().Scope != ScopeScheduler {
			same(t, "refusal of "+c.String(), want, got)
		}
	}
	if raw, err := os.ReadFile("../CONTRACT.md"); err != nil || !strings.Contains(string(raw), "**Contract version "+ContractVersion+"**") {
		t.Errorf("CONTRACT.md has not version %s, %v", ContractVersion, err)
	}
}

// TestTheContractHasTheLimits: numbers of the page are those of the code.
func TestTheContractHasTheLimits(t *testing.T) {
	raw, err := os.ReadFile("../CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.NewReplacer(",", "", "\n", " ").Replace(string(raw))
	for _, limit := range []struct {
		text string
		n    int
	}{
		{"at most % lines and 256 KiB", MaxMessageLines}, {"a line at most % KiB", MaxLine >> 10}, {"lines and % KiB", MaxMessage >> 10},
		{"`id` (1–% bytes", MaxCommandID}, {"| 1–% of `A-Z a-z", MaxCampaignName}, {"`order_id` | 1–% bytes", MaxOrderID},
		{"`order_id` | 1–% bytes", MaxCustomerID}, {"`code` | 1–% bytes", MaxCodeInput}, {"`reason` | 1–% bytes", MaxReason},
		{"booleans at most % KiB", MaxAttributes >> 10}, {"any JSON at most % bytes", MaxBenefit}, {"`category` | 1–% bytes", MaxCategory},
		{"imported) to %; may only grow", MaxCodes}, {"(unlimited) to %", MaxPerCustomer}, {"`max_redemptions` | 1 to %", MaxRedemptions},
		{"0 to %h (366", int(MaxBefore.Hours())}, {"1s to %h instead", int(MaxValidFor.Hours())}, {": % pending reminders of one customer", MaxOpenings},
		{"opening; % of one coupon", MaxReminders}, {"`reminders` | 1 to %", MaxPending}, {"3 for each code imported ones included and at least %", MinPending}, {"coupon: % for each", MaxRollbacks},
	} {
		if want := strings.Replace(limit.text, "%", strconv.Itoa(limit.n), 1); !strings.Contains(page, want) {
			t.Errorf("CONTRACT.md lacks %q", want)
		}
	}
}
