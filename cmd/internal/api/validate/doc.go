// Package validate tests the OpenAPI document of HTTP /v1: with a public parser, and with a client that a public generator makes
// from it, which then makes a journey. Answers are judged by the document in package apitest, with a JSON Schema library alone.
//
// It is a module of its own: validator and generator are larger than what they test, and the product does not require them.
package validate

import _ "github.com/oapi-codegen/runtime" // of the generated client
