#!/usr/bin/env python3
"""Calls of lather/service.h beside gRPC's in C++ (Debian: libgrpc++-dev, protobuf-compiler-grpc): the same echo, paired, in turns.

    tools/bench_service_peer.py BUILD [--rounds N]

Prints a table in Markdown: medians, and the ratio. Exit status 77 without gRPC.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

PROTO = """syntax = "proto3";
package echo;
message Bytes { bytes data = 1; }
service Echo { rpc Call(Bytes) returns (Bytes); }
"""
MAIN = r"""
#include "echo.grpc.pb.h"
#include <grpcpp/grpcpp.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

class Server final : public echo::Echo::Service {
    grpc::Status Call(grpc::ServerContext *, const echo::Bytes *in, echo::Bytes *out) override
    {
        out->set_data(in->data());
        return grpc::Status::OK;
    }
};

static void calls(echo::Echo::Stub *stub, size_t bytes, int count)
{
    echo::Bytes in, out;
    in.set_data(std::string(bytes, 0));
    for (int i = 0; i < count; i++) {
        grpc::ClientContext context;
        if (!stub->Call(&context, in, &out).ok() || out.data().size() != bytes)
            abort();
    }
}

static double measure(echo::Echo::Stub *stub, size_t bytes, int count, int threads)
{
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back(calls, stub, bytes, count / threads);
    for (auto &t : all)
        t.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main(int, char **argv)
{
    const int count = atoi(argv[2]), large = atoi(argv[3]);
    const std::string where = argv[1];
    Server service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(where == "tcp" ? "127.0.0.1:0" : "unix:" + where, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    auto server = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    auto stub = echo::Echo::NewStub(grpc::CreateCustomChannel(where == "tcp" ? "127.0.0.1:" + std::to_string(port) : "unix:" + where,
                                                              grpc::InsecureChannelCredentials(), arguments));
    measure(stub.get(), 64, count / 10, 1);
    double one = measure(stub.get(), 64, count, 1), several = measure(stub.get(), 64, count, 4);
    double bulk = measure(stub.get(), 64 << 20, large, 1);
    printf("{\"calls_per_second\": %.0f, \"calls_per_second_4\": %.0f, \"gigabytes_per_second\": %.3f}\n", count / one, count / several,
           1e-9 * (64 << 20) * large / bulk);
    server->Shutdown();
}
"""


def build_peer(folder):
    plugin = shutil.which("grpc_cpp_plugin")
    if not plugin or not shutil.which("protoc") or not shutil.which("g++"):
        print("SKIP: gRPC's C++ compiler plugin is missing (libgrpc++-dev, protobuf-compiler-grpc)")
        sys.exit(77)
    for name, text in (("echo.proto", PROTO), ("main.cc", MAIN)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    run = lambda *words: subprocess.run(words, cwd=folder, check=True)  # noqa: E731
    run("protoc", "--cpp_out=.", "--grpc_out=.", f"--plugin=protoc-gen-grpc={plugin}", "echo.proto")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"], check=True, capture_output=True, text=True).stdout.split()
    run("g++", "-O2", "-o", "peer", "main.cc", "echo.pb.cc", "echo.grpc.pb.cc", *flags)
    return os.path.join(folder, "peer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--large", type=int, default=5)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peer, own = build_peer(folder), os.path.abspath(os.path.join(a.build, "tools", "bench"))
        print("| transport | | this library | gRPC C++ | ratio of medians |\n| --- | --- | --- | --- | --- |")
        for transport in ("tcp", "ipc"):
            got = {own: [], peer: []}
            for r in range(a.rounds):
                path = os.path.join(folder, f"socket{r}")
                where = {own: "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{path}", peer: "tcp" if transport == "tcp" else path + ".peer"}
                for program in (own, peer) if r % 2 else (peer, own):
                    words = [where[program], str(a.calls), str(a.large)]
                    if program == own:
                        words = ["service", "--json", "--address", words[0], "--calls", words[1], "--large", words[2]]
                    out = subprocess.run([program, *words], check=True, capture_output=True, text=True)
                    got[program].append(json.loads(out.stdout))
            for key, name in (("calls_per_second", "calls/s, 64 bytes, one thread"), ("calls_per_second_4", "calls/s, 64 bytes, 4 threads"),
                              ("gigabytes_per_second", "GB/s, 64 MiB there and back")):
                ours, theirs = (statistics.median(g[key] for g in got[p]) for p in (own, peer))
                print(f"| {transport} | {name} | {ours:g} | {theirs:g} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    main()
