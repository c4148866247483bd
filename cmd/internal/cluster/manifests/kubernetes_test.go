package manifests

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the types that the manifests may have; a document of another kind fails.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                 func() any { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                func() any { return &apps.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networking.NetworkPolicy{} },
	"v1 Service":                         func() any { return &core.Service{} },
	"v1 ConfigMap":                       func() any { return &core.ConfigMap{} },
	"v1 Secret":                          func() any { return &core.Secret{} },
}

// objects decodes a stream of documents; a field that Kubernetes does not know is an error.
func objects(t *testing.T, from string, stream []byte) (list []any) {
	t.Helper()
	for document := range bytes.SplitSeq(stream, []byte("\n---\n")) {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		make := kinds[head.APIVersion+" "+head.Kind]
		if make == nil {
			t.Errorf("%s has a document of kind %q of %q, which this test does not know", from, head.Kind, head.APIVersion)
			continue
		}
		object := make()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %v", from, err)
		}
		list = append(list, object)
	}
	return list
}

func manifests(t *testing.T) (list []any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(docker, "kubernetes", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	raw, err := os.ReadFile(filepath.Join(docker, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !bytes.Contains(raw, []byte("- kubernetes/"+filepath.Base(file)+"\n")) {
			t.Errorf("kustomization.yaml does not have kubernetes/%s", filepath.Base(file))
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, objects(t, file, text)...)
	}
	return list
}

// pods are the templates by the name of their workload.
func pods(list []any) map[string]core.PodTemplateSpec {
	all := map[string]core.PodTemplateSpec{}
	for _, o := range list {
		switch o := o.(type) {
		case *apps.Deployment:
			all[o.Name] = o.Spec.Template
		case *apps.StatefulSet:
			all[o.Name] = o.Spec.Template
		}
	}
	return all
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// environment of a container, with the secret in place of each reference to one, and NATS_NODE as given.
func environment(t *testing.T, c core.Container, pod string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = reference.ReplaceAllStringFunc(e.Value, func(one string) string {
				value, known := env[one[2:len(one)-1]]
				if !known {
					t.Errorf("%s refers to %s, which is not set before it", e.Name, one)
				}
				return value
			})
		case e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == "scrip":
			env[e.Name] = secret
		case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			env[e.Name] = pod
		default:
			t.Errorf("%s comes from an unknown place", e.Name)
		}
	}
	return env
}

// differs are variables that differ between compose and Kubernetes, with the reason.
var differs = map[string]string{
	"SCRIP_HTTP_HOST":   "the names of services",
	"PGDATA":            "a volume of Kubernetes has lost+found",
	"NATS_PASSWORD":     "of scrip only to build SCRIP_NATS",
	"POSTGRES_PASSWORD": "of scrip only to build SCRIP_POSTGRES",
	"SCRIP_PASSWORD":    "of scrip only to build SCRIP_CREDENTIALS",
}

// TestKubernetesRunsWhatComposeRuns: manifests decode strictly; arguments, environment, images and mounts of the pods are
// those of the compose file.
func TestKubernetesRunsWhatComposeRuns(t *testing.T) {
	templates := pods(manifests(t))
	_, set := required(t, "compose.cluster.yaml")
	composed, err := project(t, "compose.cluster.yaml", set...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range composed.Services {
		if len(s.Profiles) > 0 {
			continue // monitoring: a Kubernetes cluster has its own
		}
		kind, _, _ := strings.Cut(s.Image, ":")
		template, found := templates[kind]
		if !found {
			t.Errorf("no workload %s", kind)
			continue
		}
		c := template.Spec.Containers[0]
		if !slices.Equal(c.Args, s.Command) {
			t.Errorf("%s: arguments %q, in compose %q", s.Name, c.Args, s.Command)
		}
		if c.Image != s.Image {
			t.Errorf("%s: image %s, in compose %s", s.Name, c.Image, s.Image)
		}
		env := environment(t, c, s.Name)
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if _, may := differs[name]; !may && (s.Environment[name] == nil || env[name] != *s.Environment[name]) {
				t.Errorf("%s: %s is %q, in compose %v", s.Name, name, env[name], s.Environment[name])
			}
		}
		for name := range s.Environment {
			if _, have := env[name]; !have {
				t.Errorf("%s lacks the variable %s", s.Name, name)
			}
		}
		for _, v := range s.Volumes {
			if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == v.Target }) {
				t.Errorf("%s mounts nothing at %s", s.Name, v.Target)
			}
		}
	}
}

// TestTheManifestsSurvive: what keeps answers safe and upgrades smooth.
func TestTheManifestsSurvive(t *testing.T) {
	list := manifests(t)
	budgets, policies, names := map[string]bool{}, map[string]bool{}, map[string]*core.Service{}
	for _, o := range list {
		switch o := o.(type) {
		case *policy.PodDisruptionBudget:
			budgets[o.Spec.Selector.MatchLabels["app"]] = o.Spec.MaxUnavailable.IntValue() == 1
		case *networking.NetworkPolicy:
			policies[o.Spec.PodSelector.MatchLabels["app"]] = true
		case *core.Service:
			names[o.Name] = o
		case *apps.StatefulSet:
			if o.Name == "nats" && (o.Spec.Ordinals == nil || o.Spec.Ordinals.Start != 1 || *o.Spec.Replicas != 3 || o.Spec.PodManagementPolicy != apps.ParallelPodManagement) {
				t.Error("the nodes must be nats-1 to nats-3 and start together")
			}
		case *apps.Deployment:
			if *o.Spec.Replicas != 3 || o.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 1 {
				t.Errorf("%s: three servers, replaced one by one", o.Name)
			}
		}
	}
	for name, template := range pods(list) {
		c := template.Spec.Containers[0]
		if name != "postgres" && (!budgets[name] || template.Spec.Affinity == nil || c.LivenessProbe == nil || c.StartupProbe == nil) {
			t.Errorf("%s lacks a budget for disruptions, anti-affinity or a probe", name)
		}
		if lacks := lacksSettings(c.Args); name == "postgres" && len(lacks) > 0 {
			t.Errorf("%s lacks %q", name, lacks)
		}
		if !policies[name] || c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() || !*template.Spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation {
			t.Errorf("%s lacks a network policy, a probe, a limit or its security context", name)
		}
		for _, v := range template.Spec.Volumes {
			if v.Name == "data" && v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory {
				t.Errorf("%s: data lies in memory", name)
			}
		}
	}
	nodes := pods(list)["nats"].Spec.Containers[0]
	routes := regexp.MustCompile(`nats://routes:user:s3cret@([a-z0-9-]+):6222`).FindAllStringSubmatch(environment(t, nodes, "nats-1")["NATS_ROUTES"], -1)
	if len(routes) != 3 {
		t.Errorf("the nodes have the routes %q, expected three with the password", routes)
	}
	for _, route := range routes {
		if s := names[route[1]]; s == nil || !s.Spec.PublishNotReadyAddresses || s.Spec.Selector["statefulset.kubernetes.io/pod-name"] != route[1] {
			t.Errorf("no service leads to %s, a route, before it is ready", route[1])
		}
	}
	for _, port := range nodes.Ports {
		if port.ContainerPort == 8222 {
			t.Error("the monitoring port is open to other pods")
		}
	}
	for _, probe := range []*core.Probe{nodes.StartupProbe, nodes.ReadinessProbe, nodes.LivenessProbe} {
		if probe.Exec == nil || !strings.HasPrefix(probe.Exec.Command[len(probe.Exec.Command)-1], "http://127.0.0.1:8222/healthz") {
			t.Errorf("a probe does not run in the pod, where alone the monitoring port listens: %+v", probe)
		}
	}
}

// TestKustomize: kubectl builds the whole with the files and secrets that compose has.
func TestKustomize(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("skipped: there is no kubectl, which builds the kustomization; the manifests alone are checked")
	}
	dir := filepath.Join(t.TempDir(), "docker")
	if err := os.CopyFS(dir, os.DirFS(docker)); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, ".env")) // of a user
	if out, err := exec.Command(kubectl, "kustomize", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), ".env") {
		t.Errorf("without secrets: %v\n%s", err, out)
	}
	_, set := required(t, "compose.cluster.yaml")
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(strings.Join(set, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(kubectl, "kustomize", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	configured := map[string]string{}
	for _, o := range objects(t, "kubectl kustomize", out) {
		switch o := o.(type) {
		case *core.ConfigMap:
			configured = o.Data
		case *core.Secret:
			if len(o.Data) != len(set) {
				t.Errorf("the secret has %d keys, compose requires %d", len(o.Data), len(set))
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(docker, "nats", "*.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || configured[filepath.Base(file)] != string(text) {
			t.Errorf("the pods do not have docker/nats/%s (%v)", filepath.Base(file), err)
		}
	}
	if template := pods(objects(t, "kubectl kustomize", out))["nats"]; !slices.Equal(template.Spec.Containers[0].Args[:2], []string{"--config", "/etc/nats/cluster.conf"}) {
		t.Errorf("%q", template.Spec.Containers[0].Args)
	}
}
