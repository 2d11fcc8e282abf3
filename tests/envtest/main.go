// The program that tests use as a control plane: what it does depends on the name that it is started under
// (etcd, kube-apiserver or kube-controller-manager), so that the libraries which the three share are linked once.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs, also where the system has none

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	default:
		fmt.Fprintf(os.Stderr, "%s: start this as etcd, kube-apiserver or kube-controller-manager\n", name)
		os.Exit(2)
	}
}
