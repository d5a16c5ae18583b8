# An image to grade notebooks in; notebooks/GRADING.md says how, under "In a container". Build it from what git holds:
#     git archive HEAD | docker build --tag flashlearn -
FROM python:3.11-slim
WORKDIR /flashlearn
COPY . .
# This index has PyTorch's CPU build. pip prefers it to the build of the same version that brings gigabytes of CUDA.
RUN python -m pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[notebooks]'
WORKDIR /
