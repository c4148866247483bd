package manage_test

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }
