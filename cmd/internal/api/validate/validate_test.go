package validate

import (
	"os"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// TestTheDocumentIsValid: a parser that others use reads the document, and finds nothing in it that OpenAPI 3.1 does not have.
// That answers are as it says is shown by every test that asks, see package apitest.
func TestTheDocumentIsValid(t *testing.T) {
	doc, err := libopenapi.NewDocument(document(t, apitest.Serve(t)))
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("%s: %s %v", e.Message, e.Reason, e.SchemaValidationErrors)
		}
	}
}

// document is what the server serves.
func document(t *testing.T, r *apitest.Rig) []byte {
	t.Helper()
	return r.Ask(t, "-", "GET", "/v1/openapi.json", nil).Want(t, 200).Body
}
