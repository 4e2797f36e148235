# Packages the repository this file stands in: conan create cmake/conan
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class DistlockRecipe(ConanFile):
    name = "distlock"
    description = "The standard library's mutex family on Redis or Valkey"
    license = "MIT"
    topics = ("redis", "valkey", "mutex", "distributed-lock", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"hiredis": [True, False], "tls": [True, False]}
    default_options = {"hiredis": True, "tls": False}
    no_copy_source = True

    @property
    def _repository(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        self.version = re.search(r"project\(distlock VERSION ([0-9.]+)",
                                 load(self, os.path.join(self._repository, "CMakeLists.txt"))).group(1)

    def export_sources(self):
        copy(self, "include/distlock/*.hpp", self._repository, self.export_sources_folder)
        copy(self, "LICENSE", self._repository, self.export_sources_folder)

    def configure(self):
        if self.options.tls:
            self.options.hiredis = True

    def requirements(self):
        if self.options.hiredis:
            self.requires("hiredis/[>=1.0 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.tls:
            self.requires("openssl/[>=3 <4]", transitive_headers=True, transitive_libs=True)

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)

    def package(self):
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The targets of find_package(distlock) wherever it is installed from.
        def component(name, requires):
            info = self.cpp_info.components[name]
            info.set_property("cmake_target_name", f"distlock::{name}")
            info.bindirs = info.libdirs = []
            info.requires = requires
            return info

        self.cpp_info.set_property("cmake_target_name", "distlock::all")
        component("distlock", []).system_libs = ["pthread"]
        component("testing", ["distlock"])
        if self.options.hiredis:
            component("hiredis", ["distlock", "hiredis::hiredislib"])
        if self.options.tls:
            component("hiredis_tls", ["hiredis", "openssl::ssl"])
