package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is the OpenAPI document that a server serves, as what judges requests and answers. Its schemas are JSON Schema
// (OpenAPI 3.1), read by a library that has nothing in common with the one that wrote them.
type Document struct {
	root  map[string]any
	paths []string

	mu       sync.Mutex // guards the fields below
	schemas  *jsonschema.Compiler
	answered map[string]bool // by the id of the operation: whether Check has seen a successful answer
}

const (
	at          = "mem:///openapi.json"
	problemType = "application/problem+json"
)

// ReadDocument reads a document. Objects have the fields that it lists and no others: within a version answers only gain
// fields, but not without a line in the document.
func ReadDocument(raw []byte) (*Document, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	root, ok := parsed.(map[string]any)
	if !ok || root["openapi"] != "3.1.0" {
		return nil, fmt.Errorf("not an OpenAPI document of version 3.1.0: %v", root["openapi"])
	}
	for _, s := range object(root, "components", "schemas") {
		schema := s.(map[string]any)
		if _, is := schema["properties"]; is {
			schema["additionalProperties"] = false
		}
	}
	d := &Document{root: root, schemas: jsonschema.NewCompiler(), answered: map[string]bool{}}
	d.schemas.DefaultDraft(jsonschema.Draft2020)
	d.schemas.AssertFormat()
	if err := d.schemas.AddResource(at, root); err != nil {
		return nil, err
	}
	for path, methods := range object(root, "paths") {
		d.paths = append(d.paths, path)
		for _, op := range methods.(map[string]any) {
			d.answered[op.(map[string]any)["operationId"].(string)] = false
		}
	}
	slices.SortFunc(d.paths, func(a, b string) int { return strings.Count(a, "{") - strings.Count(b, "{") }) // literal ones first
	return d, nil
}

// object is the object at a place of another one, nil if there is none.
func object(in map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		in, _ = in[key].(map[string]any)
	}
	return in
}

// pointer is a place in the document as the fragment of a URL.
func pointer(keys ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B")
	var p strings.Builder
	for _, key := range keys {
		p.WriteString("/" + escape.Replace(key))
	}
	return at + "#" + p.String()
}

// path returns the path of the document that a request's path has.
func (d *Document) path(given string) (string, bool) {
	parts := strings.Split(given, "/")
	for _, path := range d.paths {
		want := strings.Split(path, "/")
		if slices.EqualFunc(want, parts, func(w, g string) bool { return w == g || strings.HasPrefix(w, "{") && g != "" }) {
			return path, true
		}
	}
	return "", false
}

// Check fails the test unless the document lists the answer: its status, its media type, and its body by the schema. Of a
// request that was accepted it judges the body too.
func (d *Document) Check(t testing.TB, req *http.Request, sent []byte, got *Response) {
	t.Helper()
	method := strings.ToLower(req.Method)
	path, known := d.path(req.URL.EscapedPath())
	op := object(d.root, "paths", path, method)
	if !known || op == nil { // no route, or another method
		d.body(t, got.What, got.Body, pointer("components", "schemas", "Problem"))
		return
	}
	if got.Status < 300 {
		d.mu.Lock()
		d.answered[op["operationId"].(string)] = true
		d.mu.Unlock()
	}
	status := fmt.Sprint(got.Status)
	if object(op, "responses", status) == nil {
		if status = "default"; got.Status < 400 {
			t.Errorf("%s: the document does not list %d", got.What, got.Status)
			return
		}
	}
	place := []string{"paths", path, method, "responses", status}
	if ref, is := object(d.root, place...)["$ref"].(string); is {
		place = strings.Split(ref, "/")[1:]
	}
	media, _, _ := strings.Cut(got.Header.Get("Content-Type"), ";")
	if place = append(place, "content", media); object(d.root, place...) == nil {
		t.Errorf("%s: %d has a body of type %s, which the document does not list", got.What, got.Status, media)
		return
	}
	d.body(t, got.What, got.Body, pointer(append(place, "schema")...), media)
	media = "application/json" // lines are judged one by one, after the answer started
	if got.Status < 300 && len(sent) > 0 && req.Header.Get("Content-Type") == media && object(op, "requestBody", "content", media) != nil {
		d.body(t, got.What+": the request", sent, pointer("paths", path, method, "requestBody", "content", media, "schema"), media)
	}
}

// Examples fails the test for an operation without an example of each body, and for an example that its schema does not allow.
// rule is what to do.
func (d *Document) Examples(t testing.TB, rule string) {
	for _, section := range []string{"paths", "webhooks"} {
		for path, methods := range object(d.root, section) {
			for method, of := range methods.(map[string]any) {
				places := [][]string{{section, path, method, "requestBody"}}
				for status := range object(d.root, section, path, method, "responses") {
					if status < "300" {
						places = append(places, []string{section, path, method, "responses", status})
					}
				}
				for _, place := range places {
					for media, content := range object(d.root, append(place, "content")...) {
						example, there := content.(map[string]any)["example"]
						if !there {
							t.Errorf("%s has no example of %s %s: %s", of.(map[string]any)["operationId"], place[len(place)-1], media, rule)
							continue
						}
						raw, err := json.Marshal(example)
						if err != nil {
							t.Fatal(err)
						}
						d.body(t, fmt.Sprintf("the example of %s in examples.json", of.(map[string]any)["operationId"]), raw, pointer(append(place, "content", media, "schema")...))
					}
				}
			}
		}
	}
}

// Unanswered are the ids of the operations of which Check has seen no successful answer.
func (d *Document) Unanswered() (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, seen := range d.answered {
		if !seen {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// body judges a body by the schema at a place. The schema of lines is that of each line; text is any text.
func (d *Document) body(t testing.TB, what string, body []byte, place string, media ...string) {
	t.Helper()
	all := [][]byte{body}
	if len(media) > 0 {
		switch media[0] {
		case "application/x-ndjson":
			all = bytes.FieldsFunc(body, func(r rune) bool { return r == '\n' })
		case "application/json", problemType, "application/openapi+json":
		default:
			return
		}
	}
	d.mu.Lock()
	schema, err := d.schemas.Compile(place) // once each: it keeps them
	d.mu.Unlock()
	if err != nil {
		t.Errorf("%s: the document's schema: %v", what, err)
		return
	}
	for _, one := range all {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(one))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: it does not match the document: %v\n%s", what, err, one)
		}
	}
}
