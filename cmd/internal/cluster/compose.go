package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is the program of a service.
type Kind string

// The kinds, named as their images.
const (
	NATS     Kind = "nats"
	Postgres Kind = "postgres"
	Scrip    Kind = "scrip"
)

// Service is a service of the compose file with all variables replaced.
type Service struct {
	Name        string
	Kind        Kind
	Command     []string
	Environment map[string]string
	// Mounts are directories of this machine, absolute, by the directory of the container.
	Mounts map[string]string
	// After are the services that must be healthy before this one starts.
	After []string
}

// file is what is read of a compose file.
type file struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
}

// Read reads the services of a compose file, each after those that it depends on. Named volumes are directories in folder.
// Variables are looked up; an error names one that is missing.
func Read(path, folder string, lookup func(string) (string, bool)) ([]Service, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	base, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var services []Service
	for name, from := range f.Services {
		image, _, _ := strings.Cut(from.Image, ":")
		s := Service{Name: name, Kind: Kind(image), Environment: map[string]string{}, Mounts: map[string]string{}}
		if !slices.Contains([]Kind{NATS, Postgres, Scrip}, s.Kind) {
			return nil, fmt.Errorf("%s: service %s has image %q; only nats, postgres and scrip can be run as processes", path, name, from.Image)
		}
		for _, arg := range from.Command {
			if arg, err = expand(arg, lookup); err != nil {
				return nil, fmt.Errorf("%s: service %s, command: %w", path, name, err)
			}
			s.Command = append(s.Command, arg)
		}
		for key, value := range from.Environment {
			if s.Environment[key], err = expand(value, lookup); err != nil {
				return nil, fmt.Errorf("%s: service %s, %s: %w", path, name, key, err)
			}
		}
		for _, v := range from.Volumes {
			part := strings.Split(v, ":")
			if len(part) < 2 {
				return nil, fmt.Errorf("%s: service %s: volume %q must be SOURCE:DIRECTORY", path, name, v)
			}
			s.Mounts[part[1]] = filepath.Join(folder, part[0])
			if strings.HasPrefix(part[0], ".") {
				s.Mounts[part[1]] = filepath.Join(base, part[0])
			}
		}
		for _, other := range slices.Sorted(maps.Keys(from.DependsOn)) {
			if _, known := f.Services[other]; !known || from.DependsOn[other].Condition != "service_healthy" {
				return nil, fmt.Errorf("%s: service %s depends on %s, which must be a service, with condition service_healthy", path, name, other)
			}
			s.After = append(s.After, other)
		}
		services = append(services, s)
	}
	if len(services) == 0 {
		return nil, fmt.Errorf("%s has no services", path)
	}
	slices.SortFunc(services, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return ordered(services)
}

// ordered puts each service behind those that it depends on.
func ordered(services []Service) (list []Service, err error) {
	left := map[string]bool{}
	for _, s := range services {
		left[s.Name] = true
	}
	for len(services) > 0 {
		i := slices.IndexFunc(services, func(s Service) bool {
			return !slices.ContainsFunc(s.After, func(other string) bool { return left[other] })
		})
		if i < 0 {
			return nil, fmt.Errorf("services depend on each other in a circle: %s", strings.Join(slices.Sorted(maps.Keys(left)), ", "))
		}
		delete(left, services[i].Name)
		list, services = append(list, services[i]), slices.Delete(services, i, i+1)
	}
	return list, nil
}

var variableForm = regexp.MustCompile(`\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)([^}]*))?\}|)`)

// expand replaces ${NAME}, ${NAME:-default}, ${NAME:?message} and $$.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var problem error
	out := variableForm.ReplaceAllStringFunc(text, func(one string) string {
		if one == "$$" {
			return "$"
		}
		m := variableForm.FindStringSubmatch(one)
		value, set := lookup(m[2])
		if !set {
			value = ""
		}
		switch {
		case m[2] == "":
			problem = fmt.Errorf("%q has a $ that begins no ${NAME}; write $$ for a dollar sign", text)
		case value == "" && m[3] == ":-":
			value = m[4]
		case value == "":
			problem = fmt.Errorf("variable %s is not set", m[2])
		}
		return value
	})
	return out, problem
}

// Required are the names of the variables that a compose file requires with ${NAME:?…}.
func Required(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range variableForm.FindAllStringSubmatch(string(raw), -1) {
		if m[3] == ":?" && !slices.Contains(names, m[2]) {
			names = append(names, m[2])
		}
	}
	return names, nil
}
