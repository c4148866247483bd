// Package validate tests HTTP /v1 against its own OpenAPI document: with a public validator, which reads the document and the
// real answers of every operation, and with a client that a public generator makes from the document.
//
// It is a module of its own: validator and generator are larger than what they test, and the product does not require them.
package validate

import _ "github.com/oapi-codegen/runtime" // of the generated client
